//! Small cases in all their states (`cases/`): every order of steps, every death, every loss. Those
//! run that the commit chooses (`rotation`), one in four; with `SOLERA_TEST_LONG` all.
//! `SOLERA_TEST_CASE=WORDS` runs those whose names have these words.

use std::time::Instant;

#[test]
fn small_cases_hold_in_all_states() {
    let words = std::env::var("SOLERA_TEST_CASE").ok();
    let chosen = |name: &str| match &words {
        Some(words) => name.contains(words),
        None => rotation::chosen(&format!("exhaustive/{name}"), 4),
    };
    for case in super::cases::cases().into_iter().filter(|case| chosen(case.name)) {
        let begun = Instant::now();
        let checked = super::cases::check(&case, None);
        let (states, seconds) = (checked.states, begun.elapsed().as_secs_f64());
        println!("{}: {states} states, {seconds:.1} s", case.name);
        if let Some(wrong) = checked.wrong {
            panic!("{}: {wrong}", case.name);
        }
    }
}
