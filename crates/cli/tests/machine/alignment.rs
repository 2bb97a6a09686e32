//! The wish to lie in whole chunks travels: with the real `cp`, `rsync` and `tar`, from volume to
//! volume.

use crate::support::{Mounted, TestDir, can_mount, shell, solera};

/// A file of 5 MiB in which every second block follows its successor, with the attribute.
const MAKE: &str = "\
    mkdir -p $AT/d && setfattr -n user.solera.align -v 2M $AT/d &&
    head -c 5242880 /dev/urandom > $AT/plain && cp $AT/plain $AT/d/f &&
    getfattr --only-values -n user.solera.align $AT/d/f";

/// Bytes of a file of a volume that can be huge pages.
fn huge(volume: &str, path: &str) -> u64 {
    let map = solera(["map", "--json", &format!("{volume}:{path}")]).json();
    map["huge_bytes"].as_u64().expect("a number")
}

fn in_shell(place: &TestDir, volume: &str, line: &str) -> String {
    shell(volume, &place.prefix(), &line.replace("$AT", &place.prefix())).ok()
}

/// The volume's free space is a few holes of 256 KiB and whole chunks: what is written by pieces
/// scatters, into fewer pieces than an append gathers by itself.
fn holed(place: &TestDir, name: &str) -> String {
    let volume = place.text(name);
    solera(["format", "--size", "128M", &volume]).ok();
    let line = "mkdir $AT/holes && cd $AT/holes && seq 10 | xargs -I{} sh -c 'head -c 262144 \
                /dev/zero > {}' && seq 1 2 10 | xargs rm";
    in_shell(place, &volume, line);
    volume
}

#[test]
fn a_directory_passes_it_on_to_its_files_only() {
    let place = TestDir::new();
    let volume = holed(&place, "v.pm");
    assert_eq!(in_shell(&place, &volume, MAKE), "2M");
    assert_eq!((huge(&volume, "/d/f"), huge(&volume, "/plain")), (4 << 20, 2 << 20));
    let below = "mkdir $AT/d/e && cp $AT/plain $AT/d/e/g && getfattr -d $AT/d/e $AT/d/e/g";
    assert_eq!(in_shell(&place, &volume, below), "");
    assert_eq!(huge(&volume, "/d/e/g"), 2 << 20);
    solera(["fsck", &volume]).ok();
}

#[test]
fn it_survives_an_archive() {
    let place = TestDir::new();
    let (from, to) = (holed(&place, "from.pm"), holed(&place, "to.pm"));
    in_shell(&place, &from, MAKE);
    let archive = place.text("archive.tar");
    in_shell(&place, &from, &format!("cd $AT && tar --xattrs -cf {archive} d/f plain"));
    in_shell(&place, &to, &format!("cd $AT && tar --xattrs --xattrs-include='*' -xf {archive}"));
    assert_eq!((huge(&to, "/d/f"), huge(&to, "/plain")), (4 << 20, 2 << 20));
    in_shell(&place, &to, "cmp $AT/d/f $AT/plain");
    solera(["fsck", &to]).ok();
}

#[test]
fn it_survives_copies_on_a_volume() {
    let place = TestDir::new();
    let volume = holed(&place, "v.pm");
    in_shell(&place, &volume, MAKE);
    let copies = "cd $AT && cp -a d/f by-cp && rsync -aX d/f by-rsync && cp d/f by-plain-cp &&
                  cmp d/f by-cp && cmp d/f by-rsync &&
                  getfattr --only-values -n user.solera.align by-cp by-rsync";
    assert_eq!(in_shell(&place, &volume, copies), "2M2M");
    assert_eq!((huge(&volume, "/by-cp"), huge(&volume, "/by-rsync")), (4 << 20, 4 << 20));
    assert_eq!(huge(&volume, "/by-plain-cp"), 2 << 20);
    solera(["fsck", &volume]).ok();
}

#[test]
fn it_survives_copies_to_another_volume() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let (from, to) = (holed(&place, "from.pm"), holed(&place, "to.pm"));
    in_shell(&place, &from, MAKE);
    let mounted = Mounted::again(&place, to, &[]);
    let copies = format!(
        "cd $AT && cp -a d/f {0}/by-cp && rsync -aX d/f {0}/by-rsync && cmp d/f {0}/by-cp",
        mounted.at
    );
    in_shell(&place, &from, &copies);
    assert_eq!(
        (huge(&mounted.volume, "/by-cp"), huge(&mounted.volume, "/by-rsync")),
        (4 << 20, 4 << 20)
    );
    mounted.end();
}
