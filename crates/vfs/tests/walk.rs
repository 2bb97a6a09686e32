//! The path walk and the checks before each change, by Linux's rules.

mod model;

use model::Model;
use vfs::FileSystem;
use vfs::cred::Cred;
use vfs::walk::{Found, Last, Place, Tree, Walk, strip_prefix};
use vfs::{Errno, Kind, Opened, Result, User};

fn user<'a>(fs: &'a Model, cred: &'a Cred) -> User<'a> {
    let tree = Tree { root: fs.root(), prefix: b"/mnt/pm".to_vec() };
    User { walk: Walk { fs, tree: Box::leak(Box::new(tree)), cred }, umask: 0o022 }
}

fn find<'t>(user: &User<'_>, path: &'t str, follow: bool) -> Result<Found<'t>> {
    match user.walk.walk(user.walk.fs.root(), path.as_bytes(), follow)? {
        Place::Inside(found) => Ok(found),
        Place::Outside(path) => panic!("went outside: {}", String::from_utf8_lossy(&path)),
    }
}

fn outside(user: &User<'_>, path: &str) -> String {
    match user.walk.walk(user.walk.fs.root(), path.as_bytes(), true).expect("a place") {
        Place::Outside(path) => String::from_utf8(path).expect("text"),
        Place::Inside(_) => panic!("{path} stayed inside"),
    }
}

fn make(user: &User<'_>, path: &str, kind: Kind, mode: u32) -> Result<vfs::Node> {
    user.make(&find(user, path, false)?, kind, mode, 0)
}

fn link(user: &User<'_>, target: &str, path: &str) {
    let found = find(user, path, false).expect("a directory");
    user.symlink(&found, target.as_bytes()).expect("symlink");
}

#[test]
fn names_dots_and_slashes() {
    let (fs, cred) = (Model::new(), Cred::root());
    let user = user(&fs, &cred);
    let dir = make(&user, "a", Kind::Directory, 0o777).expect("mkdir");
    make(&user, "a//b/", Kind::Directory, 0o777).expect("mkdir with a slash at the end");
    let file = make(&user, "a/f", Kind::File, 0o666).expect("file");
    assert_eq!(
        find(&user, "/./a/b/.././f", true).expect("found").existing().expect("is").node,
        file
    );
    assert_eq!(find(&user, "a/b/..", true).expect("found").existing().expect("is").node, dir);
    assert!(matches!(
        find(&user, "a/b/..", true).expect("found").last,
        Last::Directory { parent: true }
    ));
    assert_eq!(find(&user, "a/f/", true).expect("found").existing().err(), Some(Errno::NOTDIR));
    assert_eq!(find(&user, "a/f/x", true).err(), Some(Errno::NOTDIR));
    assert_eq!(find(&user, "a/x/y", true).err(), Some(Errno::NOENT));
    assert!(find(&user, "a/x", true).expect("place of a new name").attr.is_none());
    assert_eq!(find(&user, "", true).err(), Some(Errno::NOENT));
    assert_eq!(find(&user, &"n".repeat(256), true).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(find(&user, &"n/".repeat(2048), true).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(make(&user, "a/new/", Kind::File, 0o666).err(), Some(Errno::NOENT));
    assert_eq!(make(&user, "a/.", Kind::Directory, 0o777).err(), Some(Errno::EXIST));
}

#[test]
fn symlinks_are_followed_where_linux_follows_them() {
    let (fs, cred) = (Model::new(), Cred::root());
    let user = user(&fs, &cred);
    make(&user, "d", Kind::Directory, 0o777).expect("mkdir");
    let file = make(&user, "d/f", Kind::File, 0o666).expect("file");
    link(&user, "d", "l");
    link(&user, "/mnt/pm/d/f", "absolute");
    link(&user, "nowhere", "dangling");
    link(&user, "loop", "loop");
    assert_eq!(find(&user, "l/f", false).expect("found").existing().expect("is").node, file);
    assert_eq!(find(&user, "absolute", true).expect("found").existing().expect("is").node, file);
    let guest = Cred::new(7, 7, vec![], 0);
    let guest = self::user(&fs, &guest);
    assert_eq!(find(&guest, "l/../l/f", false).expect("found").existing().expect("is").node, file);
    assert_eq!(find(&guest, "absolute/x", false).err(), Some(Errno::NOTDIR));
    assert_eq!(find(&user, "absolute/x", false).err(), Some(Errno::NOTDIR));
    let kind = |path, follow| find(&user, path, follow).expect("found").attr.map(|attr| attr.kind);
    assert_eq!(kind("l", false), Some(Kind::Symlink));
    assert_eq!(kind("l", true), Some(Kind::Directory));
    assert_eq!(kind("l/", false), Some(Kind::Directory));
    assert_eq!(kind("dangling", true), None);
    assert_eq!(find(&user, "loop", true).err(), Some(Errno::LOOP));
    // open(O_CREAT) through a dangling link makes its target.
    let found = find(&user, "dangling", true).expect("found");
    assert!(user.open(&found, libc::O_CREAT | libc::O_WRONLY, 0o666).is_ok());
    assert_eq!(kind("nowhere", false), Some(Kind::File));
    let found = find(&user, "dangling", false).expect("found");
    assert_eq!(user.open(&found, libc::O_NOFOLLOW, 0).err(), Some(Errno::LOOP));
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    assert_eq!(user.open(&found, exclusive, 0o666).err(), Some(Errno::EXIST));
}

#[test]
fn forty_links_and_no_more() {
    let (fs, cred) = (Model::new(), Cred::root());
    let user = user(&fs, &cred);
    make(&user, "0", Kind::File, 0o666).expect("file");
    for number in 1..=41 {
        link(&user, &(number - 1).to_string(), &number.to_string());
    }
    assert!(find(&user, "40", true).is_ok());
    assert_eq!(find(&user, "41", true).err(), Some(Errno::LOOP));
}

#[test]
fn the_way_out_of_the_tree() {
    let (fs, cred) = (Model::new(), Cred::root());
    let user = user(&fs, &cred);
    make(&user, "d", Kind::Directory, 0o777).expect("mkdir");
    link(&user, "/etc/passwd", "d/away");
    assert_eq!(outside(&user, ".."), "/mnt");
    assert_eq!(outside(&user, "d/../../x/y"), "/mnt/x/y");
    assert_eq!(outside(&user, "d/away"), "/etc/passwd");
    link(&user, "/usr", "usr");
    assert_eq!(outside(&user, "usr/bin"), "/usr/bin");
    let path = user.walk.path_of(find(&user, "d", true).expect("found").attr.expect("is").node);
    assert_eq!(path.expect("a path"), b"/mnt/pm/d");
}

#[test]
fn the_prefix_is_found_by_text() {
    let strip = |path: &'static str| strip_prefix(b"/mnt/pm", path.as_bytes()).map(<[u8]>::to_vec);
    assert_eq!(strip("/mnt/pm").as_deref(), Some(b"".as_slice()));
    assert_eq!(strip("/mnt/pm/a/../b").as_deref(), Some(b"/a/../b".as_slice()));
    assert_eq!(strip("/mnt//pm/a").as_deref(), Some(b"/a".as_slice()));
    assert_eq!(strip("/tmp/../mnt/./pm/a").as_deref(), Some(b"/a".as_slice()));
    assert_eq!(strip("/mnt/x/../pm/a").as_deref(), Some(b"/a".as_slice()));
    assert_eq!(strip("/mnt/pmx"), None);
    assert_eq!(strip("/mnt"), None);
    assert_eq!(strip("/x/mnt/pm"), None);
    assert_eq!(strip("/../mnt/pm").as_deref(), Some(b"".as_slice()));
}

#[test]
fn permissions_bind_others_than_root() {
    let (fs, root) = (Model::new(), Cred::root());
    let admin = user(&fs, &root);
    make(&admin, "closed", Kind::Directory, 0o700).expect("mkdir");
    make(&admin, "closed/f", Kind::File, 0o666).expect("file");
    make(&admin, "shared", Kind::Directory, 0o777).expect("mkdir");
    let shared = find(&admin, "shared", true).expect("found").attr.expect("is").node;
    admin.change_mode(shared, 0o1777).expect("chmod");
    make(&admin, "shared/theirs", Kind::File, 0o666).expect("file");
    let cred = Cred::new(7, 7, vec![8], 0);
    let guest = user(&fs, &cred);
    assert_eq!(find(&guest, "closed/f", true).err(), Some(Errno::ACCESS));
    assert_eq!(make(&guest, "new", Kind::File, 0o666).err(), Some(Errno::ACCESS));
    make(&guest, "shared/own", Kind::File, 0o666).expect("file");
    let theirs = find(&guest, "shared/theirs", false).expect("found");
    assert_eq!(guest.unlink(&theirs).err(), Some(Errno::PERM));
    let own = find(&guest, "shared/own", false).expect("found");
    let attr = own.existing().expect("is");
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 7, 0o644));
    assert_eq!(guest.change_owner(attr.node, Some(0), None).err(), Some(Errno::PERM));
    guest.change_owner(attr.node, None, Some(8)).expect("an own group");
    guest.unlink(&own).expect("unlink");
}

#[test]
fn a_set_group_directory_passes_its_group_on() {
    let (fs, root) = (Model::new(), Cred::root());
    let admin = user(&fs, &root);
    let team = make(&admin, "team", Kind::Directory, 0o777).expect("mkdir");
    admin.change_owner(team, None, Some(50)).expect("chown");
    admin.change_mode(team, 0o2777).expect("chmod");
    make(&admin, "team/d", Kind::Directory, 0o777).expect("mkdir");
    let attr = find(&admin, "team/d", true).expect("found").attr.expect("is");
    assert_eq!((attr.gid, attr.mode), (50, 0o2755));
}

#[test]
fn removal_and_renaming_refuse_what_linux_refuses() {
    let (fs, root) = (Model::new(), Cred::root());
    let user = user(&fs, &root);
    make(&user, "d", Kind::Directory, 0o777).expect("mkdir");
    make(&user, "f", Kind::File, 0o666).expect("file");
    let at = |path: &'static str| find(&user, path, false).expect("found");
    assert_eq!(user.unlink(&at("d")).err(), Some(Errno::ISDIR));
    assert_eq!(user.remove_dir(&at("f")).err(), Some(Errno::NOTDIR));
    assert_eq!(user.remove_dir(&at("d/.")).err(), Some(Errno::INVAL));
    assert_eq!(user.remove_dir(&at("d/../d/..")).err(), Some(Errno::NOTEMPTY));
    assert_eq!(user.remove_dir(&at("/")).err(), Some(Errno::BUSY));
    assert_eq!(user.unlink(&at("nothing")).err(), Some(Errno::NOENT));
    assert_eq!(user.rename(&at("d/."), &at("x"), 0).err(), Some(Errno::BUSY));
    assert_eq!(user.rename(&at("f"), &at("x/"), 0).err(), Some(Errno::NOTDIR));
    let keep = libc::RENAME_NOREPLACE;
    assert_eq!(user.rename(&at("f"), &at("d"), keep).err(), Some(Errno::EXIST));
    assert_eq!(user.open(&at("d"), libc::O_WRONLY, 0).err(), Some(Errno::ISDIR));
    assert_eq!(user.open(&at("f"), libc::O_DIRECTORY, 0).err(), Some(Errno::NOTDIR));
    assert!(matches!(user.open(&at("f"), libc::O_RDWR, 0), Ok(Opened::Here(_))));
}
