//! How the library is linked, in options of lld, which is rustc's own linker on this platform.
//!
//! - Its own calls of functions that it defines go to its own definitions, even where the program
//!   defines one of that name (ksh has a `getcwd`, which makes the system call through `syscall`,
//!   which would call it again).
//! - What a start needs lies together (`link/first.ld`).
//! - The dynamic linker leaves its relative relocations alone (they are in Android's table): the
//!   library applies them, when it needs them (`runtime/relocation.rs`).

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    let options = [
        "-Bsymbolic-functions".into(),
        "--pack-dyn-relocs=relr".into(),
        "--use-android-relr-tags".into(),
        format!("-T,{folder}/link/first.ld"),
    ];
    for option in options {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link/first.ld");
}
