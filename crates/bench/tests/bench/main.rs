//! `solera bench` and `solera age`: what they print, what they refuse, and that they leave nothing
//! behind. No figure is judged here.

#[path = "../../../cli/tests/support/mod.rs"]
mod support;

mod age;
mod ddmap;
mod flac;
mod micro;
mod programs;
mod sqlite;
