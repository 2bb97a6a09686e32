# Checks of perl's file functions on a directory; each says what it saw when it fails.
use strict; use warnings;
use Fcntl qw(:flock :seek :mode :DEFAULT); use File::Find; use File::Copy; use File::Path; use File::Temp;
use File::Spec; use Cwd; use POSIX (); use IO::Handle; use Socket; use IO::File; use DB_File ();

my $at = shift; my $checks = 0;
sub is { my ($got, $want, $what) = @_; $checks++; die "$what: expected [$want], found [" . ($got // 'undef') . "]\n" unless defined $got && $got eq $want; }
chdir $at or die "chdir: $!"; mkdir 'perl' or die; chdir 'perl' or die; is getcwd(), "$at/perl", 'getcwd';

# Files, tests, sizes, times, modes, links.
open my $f, '>', 'a' or die; print $f "line $_\n" for 1 .. 1000; close $f or die;
is -s 'a', 8893, '-s'; is !!(-f 'a' && -r _ && -w _ && !-x _ && !-d _ && !-z _), 1, 'file tests';
is -e 'none' ? 1 : 0, 0, '-e'; is !!(-d '.' && -x _), 1, '-d'; open $f, '>', 'z' or die; close $f; is -z 'z' ? 1 : 0, 1, '-z';
chmod 0751, 'a' or die; is sprintf('%o', S_IMODE((stat 'a')[2])), '751', 'chmod'; is -x 'a' ? 1 : 0, 1, '-x';
utime 1000000000, 1100000000, 'a' or die; is join(' ', (stat 'a')[8, 9]), '1000000000 1100000000', 'utime'; is int(-M 'a' > 365) ? 1 : 0, 1, '-M';
link 'a', 'b' or die; is((stat 'b')[3], 2, 'nlink'); is((stat 'a')[1], (stat 'b')[1], 'ino');
symlink 'a', 's' or die; is readlink 's', 'a', 'readlink'; is -l 's' ? 1 : 0, 1, '-l'; is((lstat 's')[7], 1, 'lstat');
rename 'b', 'c' or die; is -e 'b' ? 1 : 0, 0, 'rename'; is unlink('c', 'none', 's'), 2, 'unlink';
for ([sub { open my $x, '<', 'none' }, 'No such file or directory'], [sub { mkdir 'a' }, 'File exists'], [sub { rmdir 'a' }, 'Not a directory'],
     [sub { sysopen my $x, 'a', O_CREAT | O_EXCL | O_WRONLY }, 'File exists'], [sub { opendir my $x, 'a' }, 'Not a directory'], [sub { rename 'none', 'x' }, 'No such file or directory']) {
    my ($call, $error) = @$_; is $call->() ? 'no error' : "$!", $error, 'error text';
}

# Reading and writing: positions, update mode, append, layers, truncate, in-memory sort of lines.
open $f, '+<', 'a' or die; seek $f, 7, SEEK_SET or die; is scalar <$f>, "line 2\n", 'seek'; is tell $f, 14, 'tell';
seek $f, 0, SEEK_SET; print $f 'LINE'; seek $f, 0, SEEK_SET; is scalar <$f>, "LINE 1\n", 'update'; truncate $f, 70 or die; seek $f, 0, SEEK_END; is tell $f, 70, 'truncate'; close $f or die;
open $f, '>>', 'a' or die; print $f "appended\n"; close $f; open $f, '<', 'a' or die; my @lines = <$f>; close $f; is scalar @lines, 10, 'lines';
is join('', sort { $b cmp $a } @lines[1 .. 3]), "line 4\nline 3\nline 2\n", 'sort';
open $f, '>:encoding(UTF-8)', 'u' or die; print $f "\x{263a}" x 1000; close $f; is -s 'u', 3000, 'utf8'; open $f, '<:encoding(UTF-8)', 'u' or die; is length(<$f>), 1000, 'utf8 in'; close $f;
sysopen $f, 'sys', O_RDWR | O_CREAT | O_EXCL, 0600 or die; is syswrite($f, 'x' x 100000), 100000, 'syswrite'; is sysseek($f, 50000, SEEK_SET), 50000, 'sysseek'; is sysread($f, my $buffer, 60000), 50000, 'sysread'; close $f;
{ local $/ = \10; open $f, '<', 'sys' or die; my $n = 0; $n++ while <$f>; is $n, 10000, 'records'; close $f; }
{ local ($^I, @ARGV) = ('.orig', 'a'); while (<>) { s/line/row/; print; } } open $f, '<', 'a' or die; @lines = <$f>; close $f; is $lines[2], "row 3\n", '$^I'; is -e 'a.orig' ? 1 : 0, 1, 'backup';
open my $dup, '>&', \*STDOUT or die; open STDOUT, '>', 'out' or die; system 'echo from the shell'; print "from perl\n"; STDOUT->flush; open STDOUT, '>&', $dup or die; is -s 'out', 25, 'STDOUT on the volume';
is scalar(`cat out | tr a-z A-Z`), "FROM THE SHELL\nFROM PERL\n", 'backticks'; open $f, '-|', 'cat', 'out' or die; is scalar(() = <$f>), 2, 'pipe in'; close $f or die; open $f, '|-', 'sort >sorted' or die; print $f "$_\n" for 3, 1, 2; close $f or die; is scalar(`cat sorted`), "1\n2\n3\n", 'pipe out';

# Directories: 500 names, positions, globbing, find, copies, removal.
mkdir 'd' or die; for (1 .. 500) { open $f, '>', "d/n$_" or die; print $f $_; close $f; }
opendir my $d, 'd' or die; my @names = grep { !/^\./ } readdir $d; is scalar @names, 500, 'readdir'; rewinddir $d; readdir $d for 1 .. 50; my $place = telldir $d; my $next = readdir $d; seekdir $d, $place; is scalar(readdir $d), $next, 'seekdir'; closedir $d;
is scalar(my @g = glob 'd/n1*'), 111, 'glob'; my $sum = 0; find(sub { $sum += -s if -f }, 'd'); is $sum, 1392, 'find';
copy 'd/n77', 'copy' or die; move 'copy', 'd/moved' or die; is -s 'd/moved', 2, 'copy and move'; mkpath 'p/q/r'; rmtree 'p'; is -e 'p' ? 1 : 0, 0, 'rmtree'; rmtree 'd'; is -e 'd' ? 1 : 0, 0, 'rmtree';
{ my $t = File::Temp->new(DIR => '.'); print $t 'temporary'; $t->flush; is -s "$t", 9, 'File::Temp'; } is scalar(my @t = glob '??????????'), 0, 'temporary files that are left';
open $f, '+>', undef or die; print $f 'anonymous'; seek $f, 0, SEEK_SET; is scalar(<$f>), 'anonymous', 'anonymous temporary file'; close $f;

# Locks and counters between processes.
open $f, '>', 'count' or die; print $f 0; close $f;
my @children; for my $child (1 .. 4) { my $pid = fork // die; if (!$pid) { for (1 .. 250) {
    open my $c, '+<', 'count' or POSIX::_exit(1); flock $c, LOCK_EX or POSIX::_exit(2); my $n = <$c>; seek $c, 0, SEEK_SET; print $c $n + 1; close $c or POSIX::_exit(3); } POSIX::_exit(0); } push @children, $pid; }
for (@children) { waitpid $_, 0; is $?, 0, 'a child'; } open $f, '<', 'count' or die; is scalar(<$f>), 1000, 'counted under flock'; close $f;
open $f, '+<', 'count' or die; flock $f, LOCK_EX or die; my $pid = fork // die; if (!$pid) { open my $c, '<', 'count' or POSIX::_exit(1); POSIX::_exit(flock($c, LOCK_SH | LOCK_NB) ? 1 : 0); } waitpid $pid, 0; is $?, 0, 'LOCK_NB'; close $f;
pipe my $in, my $to or die; open $f, '>', 'shared' or die; $f->autoflush; print $f "parent\n"; if (!($pid = fork // die)) { print $f "child\n"; POSIX::_exit(0); } waitpid $pid, 0; print $f "parent again\n"; close $f; is scalar(`cat shared`), "parent\nchild\nparent again\n", 'shared position';

# A local socket at a path on the volume.
socket my $server, PF_UNIX, SOCK_STREAM, 0 or die; bind $server, pack_sockaddr_un('sock') or die "bind: $!"; listen $server, 5 or die; is -S 'sock' ? 1 : 0, 1, '-S';
if (!($pid = fork // die)) { socket my $c, PF_UNIX, SOCK_STREAM, 0 or POSIX::_exit(1); connect $c, pack_sockaddr_un("$at/perl/sock") or POSIX::_exit(2); syswrite $c, 'over the socket'; POSIX::_exit(0); }
accept my $peer, $server or die; waitpid $pid, 0; is $?, 0, 'the client'; sysread $peer, $buffer, 100; is $buffer, 'over the socket', 'socket'; close $server; unlink 'sock' or die;

# Berkeley DB through perl's own module.
my %h; tie %h, 'DB_File', 'btree.db', O_RDWR | O_CREAT, 0644, $DB_File::DB_BTREE or die "DB_File: $!"; $h{"key $_"} = "value $_" x 20 for 1 .. 3000; delete $h{"key $_"} for 1001 .. 2000; untie %h;
tie %h, 'DB_File', 'btree.db', O_RDONLY, 0644, $DB_File::DB_BTREE or die; is scalar(keys %h), 2000, 'keys'; is $h{'key 2500'}, 'value 2500' x 20, 'value'; untie %h;
print "all $checks of perl's checks passed\n";
