//! Small cases in all their states (`cases/`): every order of steps, every death, every loss.

use std::time::Instant;

#[test]
fn small_cases_hold_in_all_states() {
    for case in super::cases::cases() {
        let begun = Instant::now();
        let checked = super::cases::check(&case, None);
        let (states, seconds) = (checked.states, begun.elapsed().as_secs_f64());
        println!("{}: {states} states, {seconds:.1} s", case.name);
        if let Some(wrong) = checked.wrong {
            panic!("{}: {wrong}", case.name);
        }
    }
}
