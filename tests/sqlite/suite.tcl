# What every testfixture runs in place of the script it was asked for, those that a test starts
# included: loads the extension in SUITE_EXTENSION (nothing without it: then this is the unix VFS),
# whose VFS must be the default one from then on, and goes on with that script.

if {[info exists env(SUITE_EXTENSION)]} {
  sqlite3 suite_db :memory:
  suite_db enable_load_extension 1
  suite_db eval {SELECT load_extension($env(SUITE_EXTENSION), 'sqlite3_soleravfs_init')}
  suite_db close
  # default.c finds it as soon as SQLite begins again; what testfixture adds to each connection is
  # forgotten then.
  sqlite3_shutdown
  sqlite3_initialize
  autoinstall_test_functions
}
set suite_default [expr {[info exists env(SUITE_EXTENSION)] ? $env(SUITE_VFS) : "unix"}]
if {[lindex [sqlite3_vfs_list] 0] ne $suite_default} {
  puts stderr "the default VFS is not $suite_default: [sqlite3_vfs_list]"
  exit 1
}

# Each file runs in an interpreter of its own. With chance from the same seed both VFSs get the same
# tests.
proc suite_seed {command args} { interp eval [lindex $command 1] {expr {srand(1)}} }
trace add execution load_testfixture_extensions leave suite_seed

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
if {$argv0 eq "--files"} {
  # --files TESTDIR PERMUTATION: the files that SQLite itself chooses for it.
  lassign $argv testdir permutation
  set argv0 $testdir/list.test
  set argv {}
  source $testdir/permutations.test
  if {![info exists testspec($permutation)]} {
    puts stderr "SQLite knows no set of tests named $permutation"
    exit 1
  }
  array set suite_options $testspec($permutation)
  foreach suite_file [lsort $suite_options(-files)] { puts [file tail $suite_file] }
  exit 0
}
source $argv0
