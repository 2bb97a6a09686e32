//! The rows: one for every number of x86-64's table, as of Linux 7.0.
//!
//! `NUMBER name [arguments] HOW(..) point(..) numbers(..) split(..) kind(..) as [symbols];`
//!
//! - *arguments*: what each is ([`crate::Argument`]); what stands behind the last one is ignored.
//! - *how* ([`crate::Server`]): `volume(BODY)`; `refused(BODY, ERROR, reason)`: a body that refuses
//!   it if it names something on a volume; `unserved(reason)`: no body, refused by number if it has
//!   a descriptor of a volume; `watched(What)`: the kernel's, and the library must know of it;
//!   `kernel`: passed on.
//! - *body*: `int name`, `long name`: the library's exported function of this name and answer;
//!   `int own name`, `long own name`: one with the kernel's rules where they are others; `special`:
//!   no function has its form.
//! - *point*, if not `Never`; *numbers*, if not `Unchanged`; *split*, if not `Passed`; *kind*, as
//!   `solera run --profile` calls it.
//! - *symbols*: the C library's names for it that the library exports: aliases, checked forms, and
//!   functions that end in this call alone. None stands in two rows.

/// Calls a macro with all rows: `calls::for_each_row!(macro_of_the_caller)`.
#[macro_export]
macro_rules! for_each_row {
    ($callback:ident) => {
        $callback! {
0 read [Fd, Out(2), Len] volume(long read) point(Always) split(Own) kind(Read)
    as [read __read __read_nocancel __read_chk];
1 write [Fd, In(2), Len] volume(long write) point(Always) split(Own) kind(Write)
    as [write __write __write_nocancel];
2 open [Path, AnyFlags, Mode] volume(int open) point(Always) numbers(Gives) split(Own) kind(Open)
    as [open open64 __open __open64 __open_nocancel __open64_nocancel __open_2 __open64_2];
3 close [Fd] volume(int close) point(Always) numbers(Closes) split(Own) kind(Close)
    as [close __close __close_nocancel];
4 stat [Path, Writes(144)] volume(int stat) split(Own) kind(Stat)
    as [stat stat64 __xstat __xstat64];
5 fstat [Fd, Writes(144)] volume(int fstat) split(Own) kind(Fstat)
    as [fstat fstat64 __fstat64 __fxstat __fxstat64];
6 lstat [Path, Writes(144)] volume(int lstat) split(Own) kind(Stat)
    as [lstat lstat64 __lxstat __lxstat64];
7 poll [Pointer, Len, Number] kernel point(Always) numbers(Looks) as [poll __poll __poll_chk];
8 lseek [Fd, Offset, Number] volume(long lseek) split(Own) kind(Lseek)
    as [lseek lseek64 llseek __lseek];
9 mmap [Address, Len, Flags(0xf), AnyFlags, Fd, Offset] volume(long mmap) split(Own) kind(Mmap)
    as [mmap mmap64 __mmap];
10 mprotect [Address, Len, Number] volume(int mprotect) as [mprotect __mprotect];
11 munmap [Address, Len] volume(int munmap) as [munmap __munmap];
12 brk [Address] watched(Mappings);
13 rt_sigaction [Number, Reads(32), Writes(32), Len] watched(Signals) split(Own)
    as [sigaction __sigaction signal bsd_signal ssignal sysv_signal __sysv_signal siginterrupt
        sigignore];
14 rt_sigprocmask [Number, Reads(8), Writes(8), Len] watched(Signals)
    as [sigprocmask pthread_sigmask sigblock sigsetmask siggetmask sighold sigrelse];
15 rt_sigreturn [] watched(Signals);
16 ioctl [Fd, Number, Pointer] volume(int ioctl) numbers(Makes) split(Own) kind(Ioctl) as [ioctl];
17 pread64 [Fd, Out(2), Len, Offset] volume(long pread64) point(Always) split(Own) kind(Pread)
    as [pread pread64 __pread64 __pread64_nocancel __libc_pread __pread_chk __pread64_chk];
18 pwrite64 [Fd, In(2), Len, Offset] volume(long pwrite64) point(Always) split(Own) kind(Pwrite)
    as [pwrite pwrite64 __pwrite64 __libc_pwrite];
19 readv [Fd, ListOut(2), Len] volume(long readv) point(Always) split(Own) kind(Readv) as [readv];
20 writev [Fd, ListIn(2), Len] volume(long writev) point(Always) split(Own) kind(Writev)
    as [writev];
21 access [Path, Flags(0x7)] volume(int access) kind(Access) as [access];
22 pipe [Writes(8)] kernel numbers(Pair) as [pipe __pipe];
23 select [Number, Pointer, Pointer, Pointer, Updates(16)] kernel point(Always) numbers(Looks)
    as [select __select];
24 sched_yield [] kernel;
25 mremap [Address, Len, Len, Flags(0x7), Address] volume(long mremap) as [mremap];
26 msync [Address, Len, Flags(0x7)] volume(int msync) point(Always) kind(Msync) as [msync];
27 mincore [Address, Len, Pointer] kernel;
28 madvise [Address, Len, Number] volume(int madvise) as [madvise __madvise];
29 shmget [Number, Len, AnyFlags] kernel;
30 shmat [Number, Address, AnyFlags] watched(Mappings);
31 shmctl [Number, Number, Pointer] kernel;
32 dup [Fd] volume(int dup) numbers(Gives) split(Own) kind(Dup) as [dup];
33 dup2 [Fd, Fd] volume(int dup2) numbers(Replaces) split(Own) kind(Dup) as [dup2 __dup2];
34 pause [] kernel point(Always);
35 nanosleep [Reads(16), Writes(16)] kernel point(Always);
36 getitimer [Number, Writes(32)] kernel;
37 alarm [Number] kernel;
38 setitimer [Number, Reads(32), Writes(32)] kernel;
39 getpid [] kernel;
40 sendfile [Fd, Fd, Updates(8), Len] volume(long sendfile) split(Own) kind(Sendfile)
    as [sendfile sendfile64];
41 socket [Number, Number, Number] kernel numbers(Gives) as [socket __socket];
42 connect [Fd, In(2), Len] volume(int connect) point(Always) numbers(Takes)
    as [connect __connect];
43 accept [Fd, Pointer, Updates(4)] volume(int accept) point(Always) numbers(Gives) as [accept];
44 sendto [Fd, In(2), Len, AnyFlags, In(5), Len] volume(long sendto) point(Always) numbers(Takes)
    as [sendto send __send];
45 recvfrom [Fd, Out(2), Len, AnyFlags, Pointer, Updates(4)] volume(long recvfrom) point(Always)
    numbers(Takes) as [recvfrom recv __recv __recv_chk __recvfrom_chk];
46 sendmsg [Fd, Pointer, AnyFlags] volume(long sendmsg) point(Always) numbers(Takes) split(Own)
    as [sendmsg];
47 recvmsg [Fd, Pointer, AnyFlags] volume(long recvmsg) point(Always) numbers(Makes) as [recvmsg];
48 shutdown [Fd, Number] kernel numbers(Takes) as [shutdown];
49 bind [Fd, In(2), Len] volume(int bind) numbers(Takes) as [bind];
50 listen [Fd, Number] kernel numbers(Takes) as [listen];
51 getsockname [Fd, Pointer, Updates(4)] volume(int getsockname) numbers(Takes) as [getsockname];
52 getpeername [Fd, Pointer, Updates(4)] volume(int getpeername) numbers(Takes) as [getpeername];
53 socketpair [Number, Number, Number, Writes(8)] kernel numbers(Pair) as [socketpair];
54 setsockopt [Fd, Number, Number, In(4), Len] kernel numbers(Takes) as [setsockopt];
55 getsockopt [Fd, Number, Number, Pointer, Updates(4)] kernel numbers(Takes) as [getsockopt];
56 clone [AnyFlags, Address, Pointer, Pointer, Address] watched(Processes) numbers(Thread)
    split(Own) as [clone __clone];
57 fork [] watched(Processes) numbers(HandsOn) split(HandedOver) as [_Fork];
58 vfork [] watched(Processes) numbers(HandsOn) split(Own) as [vfork __vfork];
59 execve [Path, Texts, Texts] volume(int execve) numbers(HandsOn) split(HandedOver)
    as [execve execv execvp execvpe];
60 exit [Number] watched(Processes);
61 wait4 [Number, Writes(4), Flags(0xe000000b), Writes(144)] kernel point(Always);
62 kill [Number, Number] kernel;
63 uname [Writes(390)] kernel;
64 semget [Number, Number, AnyFlags] kernel;
65 semop [Number, Pointer, Len] kernel;
66 semctl [Number, Number, Number, Pointer] kernel;
67 shmdt [Address] watched(Mappings);
68 msgget [Number, AnyFlags] kernel;
69 msgsnd [Number, Pointer, Len, AnyFlags] kernel point(Always);
70 msgrcv [Number, Pointer, Len, Number, AnyFlags] kernel point(Always);
71 msgctl [Number, Number, Pointer] kernel;
72 fcntl [Fd, Number, Number] volume(int fcntl) point(Waiting) numbers(Makes) split(Own) kind(Fcntl)
    as [fcntl fcntl64 __fcntl __libc_fcntl64 lockf lockf64];
73 flock [Fd, Number] volume(int flock) split(Own) kind(Lock) as [flock];
74 fsync [Fd] volume(int fsync) point(Always) split(Own) kind(Fsync) as [fsync];
75 fdatasync [Fd] volume(int fdatasync) point(Always) split(Own) kind(Fdatasync) as [fdatasync];
76 truncate [Path, Offset] volume(int truncate) split(Own) kind(Truncate) as [truncate truncate64];
77 ftruncate [Fd, Offset] volume(int ftruncate) split(Own) kind(Ftruncate)
    as [ftruncate ftruncate64];
78 getdents [Fd, Out(2), Len] volume(special) kind(Readdir);
79 getcwd [Out(1), Len] volume(special) as [getcwd __getcwd_chk getwd __getwd_chk];
80 chdir [Path] volume(int chdir) kind(Chdir) as [chdir];
81 fchdir [Fd] volume(int fchdir) kind(Chdir) as [fchdir];
82 rename [Path, Path] volume(int rename) split(Own) kind(Rename) as [rename];
83 mkdir [Path, Mode] volume(int mkdir) kind(Mkdir) as [mkdir];
84 rmdir [Path] volume(int rmdir) kind(Rmdir) as [rmdir];
85 creat [Path, Mode] volume(int creat) point(Always) numbers(Gives) split(Own) kind(Open)
    as [creat creat64];
86 link [Path, Path] volume(int link) split(Own) kind(Link) as [link];
87 unlink [Path] volume(int unlink) split(Own) kind(Unlink) as [unlink];
88 symlink [Text, Path] volume(int symlink) kind(Symlink) as [symlink];
89 readlink [Path, Out(2), Len] volume(long readlink) kind(Readlink)
    as [readlink __readlink_chk];
90 chmod [Path, Mode] volume(int chmod) split(Drained) kind(Chmod) as [chmod];
91 fchmod [Fd, Mode] volume(int fchmod) split(Drained) kind(Chmod) as [fchmod];
92 chown [Path, Number, Number] volume(int chown) split(Drained) kind(Chown) as [chown];
93 fchown [Fd, Number, Number] volume(int fchown) split(Drained) kind(Chown) as [fchown];
94 lchown [Path, Number, Number] volume(int lchown) split(Drained) kind(Chown) as [lchown];
95 umask [Mode] volume(int umask) as [umask];
96 gettimeofday [Writes(16), Writes(8)] kernel;
97 getrlimit [Number, Writes(16)] kernel;
98 getrusage [Number, Writes(144)] kernel;
99 sysinfo [Writes(112)] kernel;
100 times [Writes(32)] kernel;
101 ptrace [Number, Number, Pointer, Pointer] kernel;
102 getuid [] kernel;
103 syslog [Number, Out(2), Len] kernel;
104 getgid [] kernel;
105 setuid [Number] volume(special) as [setuid];
106 setgid [Number] volume(special) as [setgid];
107 geteuid [] kernel;
108 getegid [] kernel;
109 setpgid [Number, Number] kernel;
110 getppid [] kernel;
111 getpgrp [] kernel;
112 setsid [] kernel;
113 setreuid [Number, Number] volume(special) as [setreuid];
114 setregid [Number, Number] volume(special) as [setregid];
115 getgroups [Len, Pointer] kernel;
116 setgroups [Len, Pointer] volume(special) as [setgroups];
117 setresuid [Number, Number, Number] volume(special) as [setresuid seteuid];
118 getresuid [Writes(4), Writes(4), Writes(4)] kernel;
119 setresgid [Number, Number, Number] volume(special) as [setresgid setegid];
120 getresgid [Writes(4), Writes(4), Writes(4)] kernel;
121 getpgid [Number] kernel;
122 setfsuid [Number] volume(special) as [setfsuid];
123 setfsgid [Number] volume(special) as [setfsgid];
124 getsid [Number] kernel;
125 capget [Updates(8), Pointer] kernel;
126 capset [Updates(8), Pointer] volume(special) as [capset];
127 rt_sigpending [Writes(8), Len] watched(Signals) as [sigpending];
128 rt_sigtimedwait [Reads(8), Writes(128), Reads(16), Len] watched(Signals) point(Always)
    as [sigtimedwait sigwaitinfo sigwait];
129 rt_sigqueueinfo [Number, Number, Reads(128)] kernel;
130 rt_sigsuspend [Reads(8), Len] watched(Signals) point(Always) as [sigsuspend];
131 sigaltstack [Reads(24), Writes(24)] volume(int sigaltstack) split(Own) as [sigaltstack];
132 utime [Path, Reads(16)] volume(int own utime) split(Drained) kind(Utimes) as [utime];
133 mknod [Path, Mode, Number] volume(int own mknod) kind(Mknod) as [mknod mkfifo __xmknod];
134 uselib [Path] kernel;
135 personality [Number] kernel;
136 ustat [Number, Writes(32)] kernel;
137 statfs [Path, Writes(120)] volume(int statfs) kind(Statfs)
    as [statfs statfs64 __statfs statvfs statvfs64];
138 fstatfs [Fd, Writes(120)] volume(int fstatfs) kind(Statfs)
    as [fstatfs fstatfs64 fstatvfs fstatvfs64];
139 sysfs [Number, Pointer, Pointer] kernel;
140 getpriority [Number, Number] kernel;
141 setpriority [Number, Number, Number] kernel;
142 sched_setparam [Number, Reads(4)] kernel;
143 sched_getparam [Number, Writes(4)] kernel;
144 sched_setscheduler [Number, Number, Reads(4)] kernel;
145 sched_getscheduler [Number] kernel;
146 sched_get_priority_max [Number] kernel;
147 sched_get_priority_min [Number] kernel;
148 sched_rr_get_interval [Number, Writes(16)] kernel;
149 mlock [Address, Len] volume(int mlock) as [mlock];
150 munlock [Address, Len] volume(int munlock) as [munlock];
151 mlockall [Flags(0x7)] volume(int mlockall) as [mlockall];
152 munlockall [] volume(int munlockall) as [munlockall];
153 vhangup [] kernel;
154 modify_ldt [Number, Pointer, Len] kernel;
155 pivot_root [Path, Path] refused(int pivot_root, "EINVAL", "nothing is mounted on a volume")
    as [pivot_root];
156 _sysctl [Pointer] kernel;
157 prctl [Number, Number, Number, Number, Number] watched(Processes) numbers(Looks) as [prctl];
158 arch_prctl [Number, Pointer] kernel;
159 adjtimex [Updates(208)] kernel;
160 setrlimit [Number, Reads(16)] volume(int setrlimit) split(Own) as [setrlimit setrlimit64];
161 chroot [Path]
    refused(int chroot, "EPERM", "the library could not follow into a root on a volume")
    kind(Chdir) as [chroot];
162 sync [] volume(int own sync) split(Own) kind(Sync) as [sync];
163 acct [Path] refused(int acct, "EINVAL", "the kernel writes no records into a volume") as [acct];
164 settimeofday [Reads(16), Reads(8)] kernel;
165 mount [Path, Path, Text, AnyFlags, Pointer]
    refused(int mount, "EPERM", "nothing is mounted on a volume") as [mount];
166 umount2 [Path, Flags(0xf)] refused(int umount2, "EINVAL", "nothing is mounted on a volume")
    as [umount umount2];
167 swapon [Path, AnyFlags] refused(int swapon, "EINVAL", "the kernel does not swap to a volume")
    as [swapon];
168 swapoff [Path] refused(int swapoff, "EINVAL", "the kernel does not swap to a volume")
    as [swapoff];
169 reboot [Number, Number, Number, Pointer] kernel;
170 sethostname [In(1), Len] kernel;
171 setdomainname [In(1), Len] kernel;
172 iopl [Number] kernel;
173 ioperm [Number, Number, Number] kernel;
174 create_module [] kernel;
175 init_module [In(1), Len, Text] kernel;
176 delete_module [Text, AnyFlags] kernel;
177 get_kernel_syms [] kernel;
178 query_module [] kernel;
179 quotactl [Number, Path, Number, Pointer]
    refused(int quotactl, "ENOTBLK", "a volume is no block device") as [quotactl];
180 nfsservctl [] kernel;
181 getpmsg [] kernel;
182 putpmsg [] kernel;
183 afs_syscall [] kernel;
184 tuxcall [] kernel;
185 security [] kernel;
186 gettid [] kernel;
187 readahead [Fd, Offset, Len] volume(long readahead) kind(Fadvise) as [readahead];
188 setxattr [Path, Text, In(3), Len, Flags(0x3)] volume(int setxattr) split(Drained)
    kind(Setxattr) as [setxattr];
189 lsetxattr [Path, Text, In(3), Len, Flags(0x3)] volume(int lsetxattr) split(Drained)
    kind(Setxattr) as [lsetxattr];
190 fsetxattr [Fd, Text, In(3), Len, Flags(0x3)] volume(int fsetxattr) split(Drained)
    kind(Setxattr) as [fsetxattr];
191 getxattr [Path, Text, Out(3), Len] volume(long getxattr) kind(Getxattr) as [getxattr];
192 lgetxattr [Path, Text, Out(3), Len] volume(long lgetxattr) kind(Getxattr) as [lgetxattr];
193 fgetxattr [Fd, Text, Out(3), Len] volume(long fgetxattr) kind(Getxattr) as [fgetxattr];
194 listxattr [Path, Out(2), Len] volume(long listxattr) kind(Listxattr) as [listxattr];
195 llistxattr [Path, Out(2), Len] volume(long llistxattr) kind(Listxattr) as [llistxattr];
196 flistxattr [Fd, Out(2), Len] volume(long flistxattr) kind(Listxattr) as [flistxattr];
197 removexattr [Path, Text] volume(int removexattr) split(Drained) kind(Removexattr)
    as [removexattr];
198 lremovexattr [Path, Text] volume(int lremovexattr) split(Drained) kind(Removexattr)
    as [lremovexattr];
199 fremovexattr [Fd, Text] volume(int fremovexattr) split(Drained) kind(Removexattr)
    as [fremovexattr];
200 tkill [Number, Number] kernel;
201 time [Writes(8)] kernel;
202 futex [Updates(4), Number, Number, Pointer, Pointer, Number] kernel;
203 sched_setaffinity [Number, Len, In(1)] kernel;
204 sched_getaffinity [Number, Len, Out(1)] kernel;
205 set_thread_area [Pointer] kernel;
206 io_setup [Number, Updates(8)]
    refused(special, "ENOSYS", "the kernel's own asynchronous calls do not see a volume")
    as [io_setup io_queue_init];
207 io_destroy [Number] kernel;
208 io_getevents [Number, Number, Number, Pointer, Reads(16)] kernel;
209 io_submit [Number, Number, Pointer] kernel numbers(Looks);
210 io_cancel [Number, Pointer, Pointer] kernel;
211 get_thread_area [Pointer] kernel;
212 lookup_dcookie [] kernel;
213 epoll_create [Number] kernel numbers(Gives) as [epoll_create];
214 epoll_ctl_old [] kernel;
215 epoll_wait_old [] kernel;
216 remap_file_pages [Address, Len, Number, Number, AnyFlags] volume(int remap_file_pages)
    as [remap_file_pages];
217 getdents64 [Fd, Out(2), Len] volume(long own getdents64) split(Own) kind(Readdir)
    as [getdents64 getdirentries getdirentries64];
218 set_tid_address [Address] watched(Processes);
219 restart_syscall [] kernel;
220 semtimedop [Number, Pointer, Len, Reads(16)] kernel;
221 fadvise64 [Fd, Offset, Offset, Number] volume(int own fadvise64) kind(Fadvise)
    as [posix_fadvise posix_fadvise64];
222 timer_create [Number, Reads(64), Writes(4)] watched(Signals) numbers(Makes) as [timer_create];
223 timer_settime [Number, AnyFlags, Reads(32), Writes(32)] kernel;
224 timer_gettime [Number, Writes(32)] kernel;
225 timer_getoverrun [Number] kernel;
226 timer_delete [Number] kernel;
227 clock_settime [Number, Reads(16)] kernel;
228 clock_gettime [Number, Writes(16)] kernel;
229 clock_getres [Number, Writes(16)] kernel;
230 clock_nanosleep [Number, AnyFlags, Reads(16), Writes(16)] kernel point(Always);
231 exit_group [Number] volume(special) split(Own) as [_exit _Exit];
232 epoll_wait [Fd, Pointer, Len, Number] kernel point(Always) numbers(Takes) as [epoll_wait];
233 epoll_ctl [Fd, Number, Fd, Reads(12)] kernel numbers(Looks) as [epoll_ctl];
234 tgkill [Number, Number, Number] kernel;
235 utimes [Path, Reads(32)] volume(int own utimes) split(Drained) kind(Utimes) as [utimes];
236 vserver [] kernel;
237 mbind [Address, Len, Number, Pointer, Number, AnyFlags] watched(Mappings);
238 set_mempolicy [Number, Pointer, Number] watched(Mappings);
239 get_mempolicy [Writes(4), Pointer, Number, Address, AnyFlags] kernel;
240 mq_open [Text, AnyFlags, Mode, Pointer] kernel numbers(Makes) as [mq_open __mq_open_2];
241 mq_unlink [Text] kernel;
242 mq_timedsend [Fd, In(2), Len, Number, Reads(16)] kernel point(Always) numbers(Takes)
    as [mq_timedsend mq_send];
243 mq_timedreceive [Fd, Out(2), Len, Writes(4), Reads(16)] kernel point(Always) numbers(Takes)
    as [mq_timedreceive mq_receive];
244 mq_notify [Fd, Reads(64)] kernel numbers(Makes) as [mq_notify];
245 mq_getsetattr [Fd, Reads(64), Writes(64)] kernel numbers(Takes) as [mq_getattr mq_setattr];
246 kexec_load [Number, Number, Pointer, AnyFlags] kernel;
247 waitid [Number, Number, Writes(128), AnyFlags, Writes(144)] kernel point(Always);
248 add_key [Text, Text, In(3), Len, Number] kernel;
249 request_key [Text, Text, Text, Number] kernel;
250 keyctl [Number, Number, Number, Number, Number] kernel;
251 ioprio_set [Number, Number, Number] kernel;
252 ioprio_get [Number, Number] kernel;
253 inotify_init [] kernel numbers(Gives) as [inotify_init];
254 inotify_add_watch [Fd, Path, AnyFlags]
    refused(int inotify_add_watch, "EOPNOTSUPP", "nobody is told of changes on a volume")
    numbers(Takes) as [inotify_add_watch];
255 inotify_rm_watch [Fd, Number] kernel numbers(Takes) as [inotify_rm_watch];
256 migrate_pages [Number, Number, Pointer, Pointer] kernel;
257 openat [Dir, Path, AnyFlags, Mode] volume(int openat) point(Always) numbers(Gives) split(Own)
    kind(Open) as [openat openat64 __openat_2 __openat64_2];
258 mkdirat [Dir, Path, Mode] volume(int mkdirat) kind(Mkdir) as [mkdirat];
259 mknodat [Dir, Path, Mode, Number] volume(int own mknodat) kind(Mknod)
    as [mknodat mkfifoat __xmknodat];
260 fchownat [Dir, Path, Number, Number, Flags(0x1100)] volume(int fchownat) split(Drained)
    kind(Chown) as [fchownat];
261 futimesat [Dir, Path, Reads(32)] volume(int own futimesat) split(Drained) kind(Utimes)
    as [futimesat];
262 newfstatat [Dir, Path, Writes(144), Flags(0x1900)] volume(int fstatat) split(Own) kind(Stat)
    as [fstatat fstatat64 __fxstatat __fxstatat64];
263 unlinkat [Dir, Path, Flags(0x200)] volume(int unlinkat) split(Own) kind(Unlink) as [unlinkat];
264 renameat [Dir, Path, Dir, Path] volume(int renameat) split(Own) kind(Rename) as [renameat];
265 linkat [Dir, Path, Dir, Path, Flags(0x1400)] volume(int linkat) split(Own) kind(Link)
    as [linkat];
266 symlinkat [Text, Dir, Path] volume(int symlinkat) kind(Symlink) as [symlinkat];
267 readlinkat [Dir, Path, Out(3), Len] volume(long readlinkat) kind(Readlink)
    as [readlinkat __readlinkat_chk];
268 fchmodat [Dir, Path, Mode] volume(int own fchmodat) split(Drained) kind(Chmod);
269 faccessat [Dir, Path, Flags(0x7)] volume(int own faccessat) kind(Access);
270 pselect6 [Number, Pointer, Pointer, Pointer, Updates(16), Reads(16)] watched(Signals)
    point(Always) numbers(Looks) as [pselect];
271 ppoll [Pointer, Len, Updates(16), Reads(8), Len] watched(Signals) point(Always) numbers(Looks)
    as [ppoll __ppoll_chk];
272 unshare [AnyFlags] volume(special) as [unshare];
273 set_robust_list [Address, Len] watched(Processes);
274 get_robust_list [Number, Writes(8), Writes(8)] kernel;
275 splice [Fd, Updates(8), Fd, Updates(8), Len, Flags(0xf)] volume(long splice) point(Always)
    split(Own) kind(Splice) as [splice];
276 tee [Fd, Fd, Len, Flags(0xf)] volume(long tee) point(Always) as [tee];
277 sync_file_range [Fd, Offset, Offset, Flags(0x7)] volume(int sync_file_range) point(Always)
    split(Own) kind(SyncRange) as [sync_file_range];
278 vmsplice [Fd, ListIn(2), Len, Flags(0xf)] volume(long vmsplice) point(Always) as [vmsplice];
279 move_pages [Number, Len, Pointer, Pointer, Pointer, AnyFlags] kernel;
280 utimensat [Dir, Path, Reads(32), Flags(0x1100)] volume(int own utimensat) split(Drained)
    kind(Utimes) as [utimensat futimens futimes lutimes];
281 epoll_pwait [Fd, Pointer, Len, Number, Reads(8), Len] watched(Signals) point(Always)
    numbers(Takes) as [epoll_pwait];
282 signalfd [Fd, Reads(8), Len] kernel numbers(Gives);
283 timerfd_create [Number, Flags(0x80800)] kernel numbers(Gives) as [timerfd_create];
284 eventfd [Number] kernel numbers(Gives);
285 fallocate [Fd, Flags(0xff), Offset, Offset] volume(int fallocate) point(Always) split(Own)
    kind(Fallocate) as [fallocate fallocate64 posix_fallocate posix_fallocate64];
286 timerfd_settime [Fd, Flags(0x3), Reads(32), Writes(32)] kernel numbers(Takes)
    as [timerfd_settime];
287 timerfd_gettime [Fd, Writes(32)] kernel numbers(Takes) as [timerfd_gettime];
288 accept4 [Fd, Pointer, Updates(4), Flags(0x80800)] volume(int accept4) point(Always)
    numbers(Gives) as [accept4];
289 signalfd4 [Fd, Reads(8), Len, Flags(0x80800)] kernel numbers(Gives) as [signalfd];
290 eventfd2 [Number, Flags(0x80801)] kernel numbers(Gives) as [eventfd];
291 epoll_create1 [Flags(0x80000)] kernel numbers(Gives) as [epoll_create1];
292 dup3 [Fd, Fd, Flags(0x80000)] volume(int dup3) numbers(Replaces) split(Own) kind(Dup)
    as [dup3];
293 pipe2 [Writes(8), Flags(0x84880)] kernel numbers(Pair) as [pipe2];
294 inotify_init1 [Flags(0x80800)] kernel numbers(Gives) as [inotify_init1];
295 preadv [Fd, ListOut(2), Len, Offset] volume(long preadv) point(Always) split(Own) kind(Preadv)
    as [preadv preadv64];
296 pwritev [Fd, ListIn(2), Len, Offset] volume(long pwritev) point(Always) split(Own)
    kind(Pwritev) as [pwritev pwritev64];
297 rt_tgsigqueueinfo [Number, Number, Number, Reads(128)] kernel;
298 perf_event_open [Pointer, Number, Number, Fd, AnyFlags] kernel numbers(Gives);
299 recvmmsg [Fd, Pointer, Len, AnyFlags, Updates(16)] volume(int recvmmsg) point(Always)
    numbers(Makes) as [recvmmsg];
300 fanotify_init [AnyFlags, AnyFlags] kernel numbers(Gives) as [fanotify_init];
301 fanotify_mark [Fd, AnyFlags, Number, Dir, Path]
    refused(int fanotify_mark, "EOPNOTSUPP", "nobody is told of changes on a volume")
    numbers(Takes) as [fanotify_mark];
302 prlimit64 [Number, Number, Reads(16), Writes(16)] volume(int prlimit) split(Own)
    as [prlimit prlimit64];
303 name_to_handle_at [Dir, Path, Pointer, Writes(4), AnyFlags]
    refused(int name_to_handle_at, "EOPNOTSUPP", "there are no file handles")
    as [name_to_handle_at];
304 open_by_handle_at [Fd, Pointer, AnyFlags]
    refused(int open_by_handle_at, "EOPNOTSUPP", "there are no file handles") point(Always)
    numbers(Gives) as [open_by_handle_at];
305 clock_adjtime [Number, Updates(208)] kernel;
306 syncfs [Fd] volume(int syncfs) split(Own) kind(Sync) as [syncfs];
307 sendmmsg [Fd, Pointer, Len, AnyFlags] volume(int sendmmsg) point(Always) numbers(Takes)
    split(Own) as [sendmmsg __sendmmsg];
308 setns [Fd, AnyFlags] volume(special) numbers(Takes) as [setns];
309 getcpu [Writes(4), Writes(4)] kernel;
310 process_vm_readv [Number, ListOut(2), Len, Pointer, Len, Flags(0x0)]
    volume(long process_vm_readv) as [process_vm_readv];
311 process_vm_writev [Number, ListIn(2), Len, Pointer, Len, Flags(0x0)]
    volume(long process_vm_writev) as [process_vm_writev];
312 kcmp [Number, Number, Number, Number, Number] kernel numbers(Looks);
313 finit_module [Fd, Text, AnyFlags] kernel numbers(Takes);
314 sched_setattr [Number, Pointer, Flags(0x0)] kernel;
315 sched_getattr [Number, Pointer, Len, Flags(0x0)] kernel;
316 renameat2 [Dir, Path, Dir, Path, Flags(0x7)] volume(int renameat2) split(Own) kind(Rename)
    as [renameat2];
317 seccomp [Number, AnyFlags, Pointer] watched(Limits) numbers(Looks);
318 getrandom [Out(1), Len, Flags(0x7)] volume(long getrandom) point(Always) as [getrandom];
319 memfd_create [Text, AnyFlags] kernel numbers(Gives) as [memfd_create];
320 kexec_file_load [Fd, Fd, Len, Text, AnyFlags] kernel numbers(Looks);
321 bpf [Number, Pointer, Len] kernel numbers(Makes);
322 execveat [Dir, Path, Texts, Texts, Flags(0x11100)] volume(int execveat) numbers(HandsOn)
    split(HandedOver) as [execveat fexecve];
323 userfaultfd [AnyFlags] kernel numbers(Gives);
324 membarrier [Number, AnyFlags, Number] kernel;
325 mlock2 [Address, Len, Flags(0x1)] volume(int mlock2) as [mlock2];
326 copy_file_range [Fd, Updates(8), Fd, Updates(8), Len, Flags(0x0)] volume(long copy_file_range)
    point(Always) split(Own) kind(CopyRange) as [copy_file_range];
327 preadv2 [Fd, ListOut(2), Len, Offset, Number, Flags(0x1ff)] volume(long own preadv2)
    point(Always) split(Own) kind(Preadv) as [preadv2 preadv64v2];
328 pwritev2 [Fd, ListIn(2), Len, Offset, Number, Flags(0x1ff)] volume(long own pwritev2)
    point(Always) split(Own) kind(Pwritev) as [pwritev2 pwritev64v2];
329 pkey_mprotect [Address, Len, Number, Number]
    refused(int pkey_mprotect, "EINVAL", "pages of a mapping of a volume cannot get a key")
    as [pkey_mprotect];
330 pkey_alloc [Flags(0x0), Number] kernel;
331 pkey_free [Number] kernel;
332 statx [Dir, Path, Flags(0x7900), AnyFlags, Writes(256)] volume(int statx) split(Own) kind(Stat)
    as [statx];
333 io_pgetevents [Number, Number, Number, Pointer, Reads(16), Pointer] kernel;
334 rseq [Address, Len, AnyFlags, Number] kernel;
335 uretprobe [] kernel;
336 uprobe [] kernel;
424 pidfd_send_signal [Fd, Number, Reads(128), AnyFlags] kernel numbers(Takes)
    as [pidfd_send_signal];
425 io_uring_setup [Number, Updates(120)]
    refused(special, "ENOSYS", "the kernel's own asynchronous calls do not see a volume")
    as [io_uring_setup io_uring_queue_init io_uring_queue_init_mem io_uring_queue_init_params];
426 io_uring_enter [Fd, Number, Number, AnyFlags, Pointer, Len] kernel numbers(Looks);
427 io_uring_register [Fd, Number, Pointer, Len] kernel numbers(Looks);
428 open_tree [Dir, Path, AnyFlags]
    refused(int open_tree, "EPERM", "no part of a volume is mounted elsewhere") numbers(Gives)
    as [open_tree];
429 move_mount [Dir, Path, Dir, Path, AnyFlags]
    refused(int move_mount, "EINVAL", "nothing is mounted on a volume") as [move_mount];
430 fsopen [Text, Flags(0x1)] kernel numbers(Gives) as [fsopen];
431 fsconfig [Fd, Number, Text, Pointer, Number] kernel numbers(Takes) as [fsconfig];
432 fsmount [Fd, Flags(0x1), AnyFlags] kernel numbers(Gives) as [fsmount];
433 fspick [Dir, Path, AnyFlags]
    refused(int fspick, "EINVAL", "a volume is no mount of the kernel's") numbers(Gives)
    as [fspick];
434 pidfd_open [Number, AnyFlags] kernel numbers(Gives) as [pidfd_open];
435 clone3 [Pointer, Len] watched(Processes) numbers(Thread);
436 close_range [Number, Number, Flags(0x6)] volume(int close_range) numbers(ClosesRange) split(Own)
    kind(Close) as [close_range closefrom];
437 openat2 [Dir, Path, Reads(24), Len] volume(special) point(Always) numbers(Gives) kind(Open);
438 pidfd_getfd [Fd, Number, Flags(0x0)] volume(int pidfd_getfd) numbers(Gives) as [pidfd_getfd];
439 faccessat2 [Dir, Path, Flags(0x7), Flags(0x1300)] volume(int faccessat) kind(Access)
    as [faccessat euidaccess eaccess];
440 process_madvise [Fd, Pointer, Len, Number, Flags(0x0)] kernel numbers(Takes)
    as [process_madvise];
441 epoll_pwait2 [Fd, Pointer, Len, Reads(16), Reads(8), Len] watched(Signals) point(Always)
    numbers(Takes) as [epoll_pwait2];
442 mount_setattr [Dir, Path, AnyFlags, Pointer, Len]
    refused(int mount_setattr, "EINVAL", "a volume is no mount of the kernel's")
    as [mount_setattr];
443 quotactl_fd [Fd, Number, Number, Pointer] unserved("a volume has no quotas");
444 landlock_create_ruleset [Pointer, Len, AnyFlags] kernel numbers(Gives);
445 landlock_add_rule [Fd, Number, Pointer, Flags(0x0)] kernel numbers(Looks);
446 landlock_restrict_self [Fd, AnyFlags] watched(Limits) numbers(Looks);
447 memfd_secret [AnyFlags] kernel numbers(Gives);
448 process_mrelease [Fd, Flags(0x0)] kernel numbers(Takes) as [process_mrelease];
449 futex_waitv [Pointer, Len, Flags(0x0), Reads(16), Number] kernel;
450 set_mempolicy_home_node [Address, Len, Number, Flags(0x0)] watched(Mappings);
451 cachestat [Fd, Reads(16), Writes(40), Flags(0x0)] unserved("a volume has no page cache");
452 fchmodat2 [Dir, Path, Mode, Flags(0x1100)] volume(int own fchmodat2) split(Drained) kind(Chmod)
    as [fchmodat lchmod];
453 map_shadow_stack [Address, Len, AnyFlags] watched(Mappings);
454 futex_wake [Pointer, Number, Number, AnyFlags] kernel;
455 futex_wait [Pointer, Number, Number, AnyFlags, Reads(16), Number] kernel;
456 futex_requeue [Pointer, AnyFlags, Number, Number] kernel;
457 statmount [Pointer, Pointer, Len, AnyFlags] kernel;
458 listmount [Pointer, Pointer, Len, AnyFlags] kernel;
459 lsm_get_self_attr [Number, Pointer, Updates(4), AnyFlags] kernel;
460 lsm_set_self_attr [Number, Pointer, Len, AnyFlags] kernel;
461 lsm_list_modules [Pointer, Updates(4), Flags(0x0)] kernel;
462 mseal [Address, Len, Flags(0x0)] watched(Mappings);
463 setxattrat [Dir, Path, AnyFlags, Text, Pointer, Len] unserved("programs use `setxattr` then");
464 getxattrat [Dir, Path, AnyFlags, Text, Pointer, Len] unserved("programs use `getxattr` then");
465 listxattrat [Dir, Path, AnyFlags, Out(4), Len] unserved("programs use `listxattr` then");
466 removexattrat [Dir, Path, AnyFlags, Text] unserved("programs use `removexattr` then");
467 open_tree_attr [Dir, Path, AnyFlags, Pointer, Len]
    unserved("no part of a volume is mounted elsewhere");
468 file_getattr [Dir, Path, Pointer, Len, AnyFlags] unserved("a volume keeps no file attributes");
469 file_setattr [Dir, Path, Pointer, Len, AnyFlags] unserved("a volume keeps no file attributes");
470 listns [Pointer, Pointer, Len, AnyFlags] kernel;
471 rseq_slice_yield [] kernel;
        }
    };
}
