//! A process dies inside a call, a survivor goes on, then power fails: nothing of the survivor's
//! work is lost.
//!
//! The test executes itself as the process that dies. `SOLERA_DEATH=start/case` runs only what
//! begins so; with `SOLERA_TEST_LONG` all cases run, at all points.

use explorer::campaign::figures;
use explorer::survivor;

const TEST: &str = "survivor::a_death_and_a_survivor_and_then_a_power_cut";

#[test]
fn a_death_and_a_survivor_and_then_a_power_cut() {
    if survivor::is_victim() {
        return survivor::die().expect("it dies");
    }
    let filter = std::env::var("SOLERA_DEATH").unwrap_or_default();
    let report = survivor::run(&filter, TEST);
    println!("deaths, survivors and power cuts: {}", figures(&report));
    assert!(report.failures.is_empty() && report.distinct > 0, "{}", report.failures.join("\n"));
}
