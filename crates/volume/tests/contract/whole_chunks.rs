//! Strict writes keep huge pages: random overwrites of 4 KiB change the bytes of a large file,
//! never where they lie. With `SOLERA_TEST_LONG`: a million of them. (`--nocapture` shows what they
//! cost beside copy-on-write in a file of single blocks.)

// Nanoseconds for people lie far below 2^52.
#![allow(clippy::cast_precision_loss)]

use crate::common::{Place, new_file};
use std::time::Instant;
use vfs::{Attached, Desc, FileSystem, IoOffset, Node, OpenFlags, UserIn, UserOut};
use volume::{BLOCK, CHUNK, Volume};

/// Chunks of the file.
const CHUNKS: u64 = 16;
const BLOCKS: u64 = CHUNKS * CHUNK / BLOCK;

fn overwrites() -> u64 {
    if std::env::var_os("SOLERA_TEST_LONG").is_some() { 1_000_000 } else { 50_000 }
}

/// xorshift64*.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % below
}

fn opened(volume: &Volume, name: &str) -> (Node, Desc) {
    let node = volume.create(volume.root(), name.as_bytes(), &new_file()).expect("made");
    (node, volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened"))
}

/// Bytes of a file in whole aligned chunks.
fn whole(volume: &Volume, node: Node) -> u64 {
    let extents = volume.extents(node).expect("looked at");
    let right = extents.iter().filter(|e| e.file_offset % CHUNK == e.region_offset % CHUNK);
    right.map(|e| e.length / CHUNK * CHUNK).sum()
}

fn write(volume: &Volume, desc: Desc, offset: u64, bytes: &[u8]) {
    let written =
        volume.write(desc, &[UserIn::new(bytes)], IoOffset::offset(offset)).expect("written");
    assert_eq!(written, bytes.len());
}

/// Overwrites blocks at random, at offsets that are whole blocks or (one in four) are not; `model`
/// holds what the file must hold. Gives the nanoseconds of one.
fn overwrite(volume: &Volume, desc: Desc, model: &mut [u8], count: u64) -> f64 {
    let mut state = 42;
    let begun = Instant::now();
    for step in 0..count {
        let mut offset = random(&mut state, BLOCKS - 1) * BLOCK;
        if step % 4 == 0 {
            offset += random(&mut state, BLOCK);
        }
        let bytes = [(step % 255) as u8 + 1; BLOCK as usize];
        write(volume, desc, offset, &bytes);
        model[offset as usize..(offset + BLOCK) as usize].copy_from_slice(&bytes);
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn check(volume: &Volume, desc: Desc, model: &[u8]) {
    let mut bytes = vec![0; model.len()];
    let read =
        volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(0)).expect("read");
    assert_eq!(read, model.len());
    assert!(bytes == model, "other bytes than were written");
}

#[test]
fn random_overwrites_leave_a_large_file_where_it_is() {
    let place = Place::of_size("whole", 256 << 20);
    let volume = place.attach();
    let mut model = vec![7; (CHUNKS * CHUNK) as usize];
    let (node, desc) = opened(&volume, "whole");
    write(&volume, desc, 0, &model);
    assert_eq!(whole(&volume, node), CHUNKS * CHUNK);
    let before = volume.extents(node).expect("looked at");
    let journaled = overwrite(&volume, desc, &mut model, overwrites());
    assert_eq!(volume.extents(node).expect("looked at"), before, "not one block has moved");
    check(&volume, desc, &model);

    // The same in a file that was written back to front, so that no chunk of it lies whole.
    let (node, desc) = opened(&volume, "holes");
    let mut model = vec![7; (CHUNKS * CHUNK) as usize];
    for at in (0..BLOCKS).rev() {
        write(&volume, desc, at * BLOCK, &[7; BLOCK as usize]);
    }
    assert_eq!(whole(&volume, node), 0);
    let copied = overwrite(&volume, desc, &mut model, overwrites() / 10);
    check(&volume, desc, &model);
    println!(
        "a strict overwrite of 4 KiB: {journaled:.0} ns under the journal in whole chunks, \
         {copied:.0} ns by copy-on-write in holes ({:.2} times that)",
        journaled / copied
    );
    volume.detach().expect("detached");
}

#[test]
fn overwrites_on_a_full_volume_leave_it_there_too() {
    let place = Place::of_size("full", 64 << 20);
    let volume = place.attach();
    let mut model = vec![7; (CHUNKS * CHUNK) as usize];
    let (node, desc) = opened(&volume, "whole");
    write(&volume, desc, 0, &model);
    let (_, filler) = opened(&volume, "filler");
    let mut length = 64 << 20;
    let mut end = 0;
    while length > 0 {
        match volume.allocate(filler, 0, end, length) {
            Ok(()) => end += length,
            Err(_) => length = length / 2 / BLOCK * BLOCK,
        }
    }
    let before = volume.extents(node).expect("looked at");
    overwrite(&volume, desc, &mut model, overwrites() / 10);
    assert_eq!(volume.extents(node).expect("looked at"), before);
    check(&volume, desc, &model);
    volume.detach().expect("detached");
}
