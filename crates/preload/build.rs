//! How the library is linked: its own calls of functions that it defines go to its own definitions,
//! even where the program defines one of that name (ksh has a `getcwd`, which makes the system call
//! through `syscall`, which would call it again).

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
