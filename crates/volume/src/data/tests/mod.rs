//! Tests of writes, and of what they leave.

mod at_once_tests;
mod file_tests;
mod plan_tests;
mod replace_tests;
mod torn_append_tests;
