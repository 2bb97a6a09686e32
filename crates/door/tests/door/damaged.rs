//! Files that are cut, changed or none: an error each, never a panic, and no damaged file believed.

use door::check::{self, Fault};
use door::image::{Damaged, FOOTER, Failed, Footer, Image};

use crate::libraries;

#[test]
fn a_file_that_is_cut_is_refused() {
    for path in libraries::host() {
        let file = std::fs::read(path).unwrap();
        let mut whole = 0;
        for length in (0..file.len()).step_by(4096) {
            // What is cut behind all that is loaded is missing its sections only.
            whole += usize::from(Image::make(&file[..length], &door::wanted).is_ok());
        }
        assert_eq!(whole, 0);
        let image = Image::make(&file, &door::wanted).unwrap();
        for length in (0..image.bytes.len()).step_by(4096) {
            assert!(Image::read(&image.bytes[..length]).is_err(), "{length}");
        }
    }
}

/// `solera run` looks at the first page of the C library only, at each start. It was told that the
/// file is cut, and patched the library anew each time, which took 13 ms.
#[test]
fn the_build_id_is_found_in_the_first_page() {
    for path in libraries::host() {
        let file = std::fs::read(path).unwrap();
        let whole = door::image::build_id_of(&file).unwrap();
        assert_eq!(door::image::build_id_of(&file[..4096]).unwrap(), whole);
    }
}

#[test]
fn a_bit_that_is_wrong_is_found() {
    let file = std::fs::read(&libraries::host()[1]).unwrap();
    let image = Image::make(&file, &door::wanted).unwrap();
    assert_eq!(Image::read(&image.bytes).unwrap().records, image.records);
    assert_eq!(Image::make(&image.bytes, &door::wanted).unwrap_err(), Failed::Patched);
    let mut bytes = image.bytes.clone();
    let length = bytes.len();
    for at in (0..length).step_by(997).chain(length - FOOTER..length) {
        bytes[at] ^= 1 << (at % 8);
        assert!(Image::read(&bytes).is_err(), "{at}");
        bytes[at] ^= 1 << (at % 8);
    }
    let last: &[u8; FOOTER] = bytes.last_chunk().unwrap();
    for byte in 0..FOOTER {
        for bit in 0..8 {
            let mut wrong = *last;
            wrong[byte] ^= 1 << bit;
            assert!(Footer::read(&wrong).is_err(), "{byte} {bit}");
        }
    }
}

#[test]
fn headers_that_are_wrong_are_no_panic() {
    let file = std::fs::read(&libraries::host()[1]).unwrap();
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize
    };
    // The ELF header, the program headers, the notes; the table of unwinding; the section headers.
    let table = file.len() - 64 * 26;
    for _ in 0..3000 {
        let mut wrong = file.clone();
        for _ in 0..=draw() % 4 {
            let at = match draw() % 3 {
                0 => draw() % 1024,
                1 => 0x2d000 + draw() % 0x1000,
                _ => table + draw() % (64 * 26),
            };
            wrong[at] = match draw() % 3 {
                0 => 0,
                1 => 0xff,
                _ => draw() as u8,
            };
        }
        let _ = Image::make(&wrong, &door::wanted);
        let _ = door::image::build_id_of(&wrong);
    }
    for none in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0; 4096]] {
        assert!(matches!(Image::make(none, &door::wanted), Err(Failed::Unfit(_))));
        assert!(matches!(Image::read(none), Err(Damaged::Short | Damaged::Magic)));
    }
}

#[test]
fn a_call_of_an_unknown_shape_is_refused() {
    let path = &libraries::host()[0];
    let mut file = std::fs::read(path).unwrap();
    let image = Image::make(&file, &door::wanted).unwrap();
    let footer = image.footer;
    let plain = |one: &&door::image::Record| one.kind() == "constant" && one.end - one.start == 7;
    let first = image.records.iter().find(plain).unwrap();
    // The number is negated before the call: nothing that may stand there.
    let at = (u64::from(first.address) - footer.text_address + footer.text_offset) as usize;
    file[at - 5..at].copy_from_slice(&[0xf7, 0xd8, 0xf7, 0xd8, 0x90]);
    file[at + 2..at + 8].copy_from_slice(&[0x90; 6]);
    let failed = Image::make(&file, &door::wanted).unwrap_err();
    assert_eq!(failed, Failed::Unknown(u64::from(first.address)));
    assert!(failed.to_string().contains("not known"));
}

#[test]
fn every_site_is_run_once() {
    for path in libraries::all() {
        let file = std::fs::read(&path).unwrap();
        let image = Image::make(&file, &door::wanted).unwrap();
        let (sites, wrong) = check::check(&file, &image).unwrap();
        assert_eq!(sites, image.footer.patched as usize);
        let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{}: {}", path.display(), wrong.join("\n"));
    }
}

#[test]
fn a_site_that_is_wrong_is_found() {
    let file = std::fs::read(&libraries::host()[0]).unwrap();
    let image = Image::make(&file, &door::wanted).unwrap();
    let footer = image.footer;
    let of = |kind: &str| *image.records.iter().find(|one| one.kind() == kind).unwrap();
    let offset =
        |address: u32| (u64::from(address) - footer.text_address + footer.text_offset) as usize;
    let constant = of("constant");
    let compared = of("compared");
    let changes: [(u32, usize, &[u8], Fault); 4] = [
        // Another number behind the call.
        (constant.address, offset(constant.end) - 1, &[0xfe], Fault::Number),
        // Another comparison.
        (compared.address, offset(compared.start) + 5, &[0x66, 0x90, 0x90], Fault::Flags),
        // A call to elsewhere: into a word of zeros.
        (constant.address, offset(constant.end) - 6, &[0, 0, 0, 0], Fault::NotAsked),
        // push %rax in the place of a nop.
        (compared.address, offset(compared.start) + 5, &[0x50, 0x90, 0x90], Fault::Registers),
    ];
    for (address, at, bytes, fault) in changes {
        let mut wrong = image.clone();
        wrong.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        let (_, found) = check::check(&file, &wrong).unwrap();
        assert!(found.iter().any(|one| one.address == u64::from(address)), "{fault:?}: {found:?}");
        println!("{}", found[0]);
    }
}
