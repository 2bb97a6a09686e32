//! Tests of writes, and of what they leave.

mod atomic_change_tests;
mod beside_tests;
mod file_tests;
mod plan_tests;
mod replacement_tests;
mod torn_append_tests;
