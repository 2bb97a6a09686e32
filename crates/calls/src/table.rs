//! The rows: one for every number of x86-64's table, as of Linux 7.0.
//!
//! `NUMBER name [arguments] HOW(..) numbers(..) split(..) kind(..) as [symbols];`
//!
//! - *arguments*: what each is ([`crate::Argument`]); what stands behind the last one is ignored.
//! - *how* ([`crate::Server`]): `volume(BODY)`; `refused(BODY, ERROR, reason)`: a body that refuses
//!   it if it names something on a volume; `unserved(reason)`: no body, refused if it has a
//!   descriptor of a volume; `watched(What)`: the kernel's, and the library must know of it;
//!   `kernel`: passed on.
//! - *body*: `int name`, `long name`: the library's function of the call's name, with an answer of
//!   this type.
//! - *numbers*, if not `Unchanged`; *split*, if not `Passed`; *kind*, as `solera run --profile`
//!   calls it.
//! - *symbols*: the C library's names for it that the library exports. None stands in two rows.

/// Calls a macro with all rows: `calls::for_each_row!(macro_of_the_caller)`.
#[macro_export]
macro_rules! for_each_row {
    ($callback:ident) => {
        $callback! {
0 read [Fd, Out(2), Len] volume(long read) split(Own) kind(Read) as [read __read];
1 write [Fd, In(2), Len] volume(long write) split(Own) kind(Write) as [write __write];
2 open [Path, AnyFlags, Mode] volume(int open) numbers(Gives) split(Own) kind(Open)
    as [open open64 __open __open64];
3 close [Fd] volume(int close) numbers(Closes) split(Own) kind(Close) as [close __close];
4 stat [Path, Writes(144)] volume(int stat) split(Own) kind(Stat) as [stat stat64];
5 fstat [Fd, Writes(144)] volume(int fstat) split(Own) kind(Fstat) as [fstat fstat64];
6 lstat [Path, Writes(144)] volume(int lstat) split(Own) kind(Stat);
7 poll [Pointer, Len, Number] kernel numbers(Looks);
8 lseek [Fd, Offset, Number] volume(long lseek) split(Own) kind(Lseek) as [lseek lseek64 __lseek];
9 mmap [Address, Len, Flags(0xf), AnyFlags, Fd, Offset] volume(long mmap) split(Own) kind(Mmap);
10 mprotect [Address, Len, Number] volume(int mprotect);
11 munmap [Address, Len] volume(int munmap);
12 brk [Address] kernel;
13 rt_sigaction [Number, Reads(32), Writes(32), Len] volume(int rt_sigaction) split(Own);
14 rt_sigprocmask [Number, Reads(8), Writes(8), Len] volume(int rt_sigprocmask) split(Own);
15 rt_sigreturn [] kernel;
16 ioctl [Fd, Number, Pointer] volume(int ioctl) numbers(Makes) split(Own) kind(Ioctl);
17 pread64 [Fd, Out(2), Len, Offset] volume(long pread64) split(Own) kind(Pread)
    as [pread pread64 __pread64];
18 pwrite64 [Fd, In(2), Len, Offset] volume(long pwrite64) split(Own) kind(Pwrite)
    as [pwrite pwrite64 __pwrite64];
19 readv [Fd, ListOut(2), Len] volume(long readv) split(Own) kind(Readv) as [readv];
20 writev [Fd, ListIn(2), Len] volume(long writev) split(Own) kind(Writev) as [writev];
21 access [Path, Flags(0x7)] volume(int access) kind(Access);
22 pipe [Writes(8)] kernel numbers(Pair);
23 select [Number, Pointer, Pointer, Pointer, Updates(16)] kernel numbers(Looks);
24 sched_yield [] kernel;
25 mremap [Address, Len, Len, Flags(0x7), Address] volume(long mremap);
26 msync [Address, Len, Flags(0x7)] volume(int msync) kind(Msync);
27 mincore [Address, Len, Pointer] kernel;
28 madvise [Address, Len, Number] volume(int madvise);
29 shmget [Number, Len, AnyFlags] kernel;
30 shmat [Number, Address, AnyFlags] kernel;
31 shmctl [Number, Number, Pointer] kernel;
32 dup [Fd] volume(int dup) numbers(Gives) split(Own) kind(Dup);
33 dup2 [Fd, Fd] volume(int dup2) numbers(Replaces) split(Own) kind(Dup);
34 pause [] kernel;
35 nanosleep [Reads(16), Writes(16)] kernel;
36 getitimer [Number, Writes(32)] kernel;
37 alarm [Number] kernel;
38 setitimer [Number, Reads(32), Writes(32)] kernel;
39 getpid [] kernel;
40 sendfile [Fd, Fd, Updates(8), Len] volume(long sendfile) split(Own) kind(Sendfile);
41 socket [Number, Number, Number] kernel numbers(Gives);
42 connect [Fd, In(2), Len] volume(int connect) numbers(Takes);
43 accept [Fd, Pointer, Updates(4)] volume(int accept) numbers(Gives);
44 sendto [Fd, In(2), Len, AnyFlags, In(5), Len] volume(long sendto) numbers(Takes);
45 recvfrom [Fd, Out(2), Len, AnyFlags, Pointer, Updates(4)] volume(long recvfrom) numbers(Takes);
46 sendmsg [Fd, Pointer, AnyFlags] volume(long sendmsg) numbers(Takes) split(Own);
47 recvmsg [Fd, Pointer, AnyFlags] volume(long recvmsg) numbers(Makes);
48 shutdown [Fd, Number] kernel numbers(Takes);
49 bind [Fd, In(2), Len] volume(int bind) numbers(Takes);
50 listen [Fd, Number] kernel numbers(Takes);
51 getsockname [Fd, Pointer, Updates(4)] volume(int getsockname) numbers(Takes);
52 getpeername [Fd, Pointer, Updates(4)] volume(int getpeername) numbers(Takes);
53 socketpair [Number, Number, Number, Writes(8)] kernel numbers(Pair);
54 setsockopt [Fd, Number, Number, In(4), Len] kernel numbers(Takes);
55 getsockopt [Fd, Number, Number, Pointer, Updates(4)] kernel numbers(Takes);
56 clone [AnyFlags, Address, Pointer, Pointer, Address] watched(Processes) numbers(Thread)
    split(Own) as [clone __clone];
57 fork [] watched(Processes) numbers(HandsOn) split(HandedOver);
58 vfork [] watched(Processes) numbers(HandsOn) split(Own);
59 execve [Path, Texts, Texts] volume(int execve) numbers(HandsOn) split(HandedOver);
60 exit [Number] kernel;
61 wait4 [Number, Writes(4), Flags(0xe000000b), Writes(144)] kernel;
62 kill [Number, Number] kernel;
63 uname [Writes(390)] kernel;
64 semget [Number, Number, AnyFlags] kernel;
65 semop [Number, Pointer, Len] kernel;
66 semctl [Number, Number, Number, Pointer] kernel;
67 shmdt [Address] kernel;
68 msgget [Number, AnyFlags] kernel;
69 msgsnd [Number, Pointer, Len, AnyFlags] kernel;
70 msgrcv [Number, Pointer, Len, Number, AnyFlags] kernel;
71 msgctl [Number, Number, Pointer] kernel;
72 fcntl [Fd, Number, Number] volume(int fcntl) numbers(Makes) split(Own) kind(Fcntl);
73 flock [Fd, Number] volume(int flock) split(Own) kind(Lock);
74 fsync [Fd] volume(int fsync) split(Own) kind(Fsync);
75 fdatasync [Fd] volume(int fdatasync) split(Own) kind(Fdatasync);
76 truncate [Path, Offset] volume(int truncate) split(Own) kind(Truncate);
77 ftruncate [Fd, Offset] volume(int ftruncate) split(Own) kind(Ftruncate);
78 getdents [Fd, Out(2), Len] volume(long getdents) kind(Readdir);
79 getcwd [Out(1), Len] volume(int getcwd);
80 chdir [Path] volume(int chdir) kind(Chdir);
81 fchdir [Fd] volume(int fchdir) kind(Chdir);
82 rename [Path, Path] volume(int rename) split(Own) kind(Rename);
83 mkdir [Path, Mode] volume(int mkdir) kind(Mkdir);
84 rmdir [Path] volume(int rmdir) kind(Rmdir);
85 creat [Path, Mode] volume(int creat) numbers(Gives) split(Own) kind(Open);
86 link [Path, Path] volume(int link) split(Own) kind(Link);
87 unlink [Path] volume(int unlink) split(Own) kind(Unlink);
88 symlink [Text, Path] volume(int symlink) kind(Symlink);
89 readlink [Path, Out(2), Len] volume(long readlink) kind(Readlink);
90 chmod [Path, Mode] volume(int chmod) split(Drained) kind(Chmod);
91 fchmod [Fd, Mode] volume(int fchmod) split(Drained) kind(Chmod);
92 chown [Path, Number, Number] volume(int chown) split(Drained) kind(Chown);
93 fchown [Fd, Number, Number] volume(int fchown) split(Drained) kind(Chown);
94 lchown [Path, Number, Number] volume(int lchown) split(Drained) kind(Chown);
95 umask [Mode] volume(int umask);
96 gettimeofday [Writes(16), Writes(8)] kernel;
97 getrlimit [Number, Writes(16)] kernel;
98 getrusage [Number, Writes(144)] kernel;
99 sysinfo [Writes(112)] kernel;
100 times [Writes(32)] kernel;
101 ptrace [Number, Number, Pointer, Pointer] kernel;
102 getuid [] kernel;
103 syslog [Number, Out(2), Len] kernel;
104 getgid [] kernel;
105 setuid [Number] volume(long setuid) as [setuid];
106 setgid [Number] volume(long setgid) as [setgid];
107 geteuid [] kernel;
108 getegid [] kernel;
109 setpgid [Number, Number] kernel;
110 getppid [] kernel;
111 getpgrp [] kernel;
112 setsid [] kernel;
113 setreuid [Number, Number] volume(long setreuid) as [setreuid];
114 setregid [Number, Number] volume(long setregid) as [setregid];
115 getgroups [Len, Pointer] kernel;
116 setgroups [Len, Pointer] volume(long setgroups) as [setgroups];
117 setresuid [Number, Number, Number] volume(long setresuid) as [setresuid seteuid];
118 getresuid [Writes(4), Writes(4), Writes(4)] kernel;
119 setresgid [Number, Number, Number] volume(long setresgid) as [setresgid setegid];
120 getresgid [Writes(4), Writes(4), Writes(4)] kernel;
121 getpgid [Number] kernel;
122 setfsuid [Number] volume(long setfsuid);
123 setfsgid [Number] volume(long setfsgid);
124 getsid [Number] kernel;
125 capget [Updates(8), Pointer] kernel;
126 capset [Updates(8), Pointer] volume(long capset);
127 rt_sigpending [Writes(8), Len] volume(int rt_sigpending) split(Own);
128 rt_sigtimedwait [Reads(8), Writes(128), Reads(16), Len] volume(int rt_sigtimedwait) split(Own);
129 rt_sigqueueinfo [Number, Number, Reads(128)] kernel;
130 rt_sigsuspend [Reads(8), Len] volume(int rt_sigsuspend) split(Own);
131 sigaltstack [Reads(24), Writes(24)] volume(int sigaltstack) split(Own);
132 utime [Path, Reads(16)] volume(int utime) split(Drained) kind(Utimes);
133 mknod [Path, Mode, Number] volume(int mknod) kind(Mknod);
134 uselib [Path] kernel;
135 personality [Number] kernel;
136 ustat [Number, Writes(32)] kernel;
137 statfs [Path, Writes(120)] volume(int statfs) kind(Statfs);
138 fstatfs [Fd, Writes(120)] volume(int fstatfs) kind(Statfs);
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
149 mlock [Address, Len] volume(int mlock);
150 munlock [Address, Len] volume(int munlock);
151 mlockall [Flags(0x7)] volume(int mlockall);
152 munlockall [] volume(int munlockall);
153 vhangup [] kernel;
154 modify_ldt [Number, Pointer, Len] kernel;
155 pivot_root [Path, Path] refused(int pivot_root, "EINVAL", "nothing is mounted on a volume");
156 _sysctl [Pointer] kernel;
157 prctl [Number, Number, Number, Number, Number] volume(int prctl) numbers(Looks);
158 arch_prctl [Number, Pointer] kernel;
159 adjtimex [Updates(208)] kernel;
160 setrlimit [Number, Reads(16)] volume(int setrlimit) split(Own);
161 chroot [Path]
    refused(int chroot, "EPERM", "the library could not follow into a root on a volume") kind(Chdir)
   ;
162 sync [] volume(int sync) split(Own) kind(Sync);
163 acct [Path] refused(int acct, "EINVAL", "the kernel writes no records into a volume");
164 settimeofday [Reads(16), Reads(8)] kernel;
165 mount [Path, Path, Text, AnyFlags, Pointer]
    refused(int mount, "EPERM", "nothing is mounted on a volume");
166 umount2 [Path, Flags(0xf)] refused(int umount2, "EINVAL", "nothing is mounted on a volume");
167 swapon [Path, AnyFlags] refused(int swapon, "EINVAL", "the kernel does not swap to a volume");
168 swapoff [Path] refused(int swapoff, "EINVAL", "the kernel does not swap to a volume");
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
    refused(int quotactl, "ENOTBLK", "a volume is no block device");
180 nfsservctl [] kernel;
181 getpmsg [] kernel;
182 putpmsg [] kernel;
183 afs_syscall [] kernel;
184 tuxcall [] kernel;
185 security [] kernel;
186 gettid [] kernel;
187 readahead [Fd, Offset, Len] volume(long readahead) kind(Fadvise);
188 setxattr [Path, Text, In(3), Len, Flags(0x3)] volume(int setxattr) split(Drained) kind(Setxattr)
   ;
189 lsetxattr [Path, Text, In(3), Len, Flags(0x3)] volume(int lsetxattr) split(Drained)
    kind(Setxattr);
190 fsetxattr [Fd, Text, In(3), Len, Flags(0x3)] volume(int fsetxattr) split(Drained) kind(Setxattr)
   ;
191 getxattr [Path, Text, Out(3), Len] volume(long getxattr) kind(Getxattr);
192 lgetxattr [Path, Text, Out(3), Len] volume(long lgetxattr) kind(Getxattr);
193 fgetxattr [Fd, Text, Out(3), Len] volume(long fgetxattr) kind(Getxattr);
194 listxattr [Path, Out(2), Len] volume(long listxattr) kind(Listxattr);
195 llistxattr [Path, Out(2), Len] volume(long llistxattr) kind(Listxattr);
196 flistxattr [Fd, Out(2), Len] volume(long flistxattr) kind(Listxattr);
197 removexattr [Path, Text] volume(int removexattr) split(Drained) kind(Removexattr);
198 lremovexattr [Path, Text] volume(int lremovexattr) split(Drained) kind(Removexattr);
199 fremovexattr [Fd, Text] volume(int fremovexattr) split(Drained) kind(Removexattr);
200 tkill [Number, Number] kernel;
201 time [Writes(8)] kernel;
202 futex [Updates(4), Number, Number, Pointer, Pointer, Number] kernel;
203 sched_setaffinity [Number, Len, In(1)] kernel;
204 sched_getaffinity [Number, Len, Out(1)] kernel;
205 set_thread_area [Pointer] kernel;
206 io_setup [Number, Updates(8)]
    refused(int io_setup, "ENOSYS", "the kernel's own asynchronous calls do not see a volume")
    split(Own)
    as [io_setup io_queue_init];
207 io_destroy [Number] kernel;
208 io_getevents [Number, Number, Number, Pointer, Reads(16)] kernel;
209 io_submit [Number, Number, Pointer] kernel numbers(Looks);
210 io_cancel [Number, Pointer, Pointer] kernel;
211 get_thread_area [Pointer] kernel;
212 lookup_dcookie [] kernel;
213 epoll_create [Number] kernel numbers(Gives);
214 epoll_ctl_old [] kernel;
215 epoll_wait_old [] kernel;
216 remap_file_pages [Address, Len, Number, Number, AnyFlags] volume(int remap_file_pages);
217 getdents64 [Fd, Out(2), Len] volume(long getdents64) split(Own) kind(Readdir);
218 set_tid_address [Address] kernel;
219 restart_syscall [] kernel;
220 semtimedop [Number, Pointer, Len, Reads(16)] kernel;
221 fadvise64 [Fd, Offset, Offset, Number] volume(int fadvise64) kind(Fadvise);
222 timer_create [Number, Reads(64), Writes(4)] kernel numbers(Makes);
223 timer_settime [Number, AnyFlags, Reads(32), Writes(32)] kernel;
224 timer_gettime [Number, Writes(32)] kernel;
225 timer_getoverrun [Number] kernel;
226 timer_delete [Number] kernel;
227 clock_settime [Number, Reads(16)] kernel;
228 clock_gettime [Number, Writes(16)] kernel;
229 clock_getres [Number, Writes(16)] kernel;
230 clock_nanosleep [Number, AnyFlags, Reads(16), Writes(16)] kernel;
231 exit_group [Number] watched(Processes) split(Own);
232 epoll_wait [Fd, Pointer, Len, Number] kernel numbers(Takes);
233 epoll_ctl [Fd, Number, Fd, Reads(12)] kernel numbers(Looks);
234 tgkill [Number, Number, Number] kernel;
235 utimes [Path, Reads(32)] volume(int utimes) split(Drained) kind(Utimes);
236 vserver [] kernel;
237 mbind [Address, Len, Number, Pointer, Number, AnyFlags] volume(int mbind);
238 set_mempolicy [Number, Pointer, Number] volume(int set_mempolicy);
239 get_mempolicy [Writes(4), Pointer, Number, Address, AnyFlags] kernel;
240 mq_open [Text, AnyFlags, Mode, Pointer] kernel numbers(Makes);
241 mq_unlink [Text] kernel;
242 mq_timedsend [Fd, In(2), Len, Number, Reads(16)] kernel numbers(Takes);
243 mq_timedreceive [Fd, Out(2), Len, Writes(4), Reads(16)] kernel numbers(Takes);
244 mq_notify [Fd, Reads(64)] kernel numbers(Makes);
245 mq_getsetattr [Fd, Reads(64), Writes(64)] kernel numbers(Takes);
246 kexec_load [Number, Number, Pointer, AnyFlags] kernel;
247 waitid [Number, Number, Writes(128), AnyFlags, Writes(144)] kernel;
248 add_key [Text, Text, In(3), Len, Number] kernel;
249 request_key [Text, Text, Text, Number] kernel;
250 keyctl [Number, Number, Number, Number, Number] kernel;
251 ioprio_set [Number, Number, Number] kernel;
252 ioprio_get [Number, Number] kernel;
253 inotify_init [] kernel numbers(Gives);
254 inotify_add_watch [Fd, Path, AnyFlags] volume(int inotify_add_watch) numbers(Takes);
255 inotify_rm_watch [Fd, Number] kernel numbers(Takes);
256 migrate_pages [Number, Number, Pointer, Pointer] kernel;
257 openat [Dir, Path, AnyFlags, Mode] volume(int openat) numbers(Gives) split(Own) kind(Open)
    as [openat openat64];
258 mkdirat [Dir, Path, Mode] volume(int mkdirat) kind(Mkdir);
259 mknodat [Dir, Path, Mode, Number] volume(int mknodat) kind(Mknod);
260 fchownat [Dir, Path, Number, Number, Flags(0x1100)] volume(int fchownat) split(Drained)
    kind(Chown);
261 futimesat [Dir, Path, Reads(32)] volume(int futimesat) split(Drained) kind(Utimes);
262 newfstatat [Dir, Path, Writes(144), Flags(0x1900)] volume(int newfstatat) split(Own) kind(Stat)
   ;
263 unlinkat [Dir, Path, Flags(0x200)] volume(int unlinkat) split(Own) kind(Unlink);
264 renameat [Dir, Path, Dir, Path] volume(int renameat) split(Own) kind(Rename);
265 linkat [Dir, Path, Dir, Path, Flags(0x1400)] volume(int linkat) split(Own) kind(Link);
266 symlinkat [Text, Dir, Path] volume(int symlinkat) kind(Symlink);
267 readlinkat [Dir, Path, Out(3), Len] volume(long readlinkat) kind(Readlink);
268 fchmodat [Dir, Path, Mode] volume(int fchmodat) split(Drained) kind(Chmod);
269 faccessat [Dir, Path, Flags(0x7)] volume(int faccessat) kind(Access);
270 pselect6 [Number, Pointer, Pointer, Pointer, Updates(16), Reads(16)] volume(int pselect6)
    numbers(Looks) split(Own);
271 ppoll [Pointer, Len, Updates(16), Reads(8), Len] volume(int ppoll) numbers(Looks) split(Own);
272 unshare [AnyFlags] volume(long unshare);
273 set_robust_list [Address, Len] watched(Processes);
274 get_robust_list [Number, Writes(8), Writes(8)] kernel;
275 splice [Fd, Updates(8), Fd, Updates(8), Len, Flags(0xf)] volume(long splice) split(Own)
    kind(Splice);
276 tee [Fd, Fd, Len, Flags(0xf)] volume(long tee);
277 sync_file_range [Fd, Offset, Offset, Flags(0x7)] volume(int sync_file_range) split(Own)
    kind(SyncRange);
278 vmsplice [Fd, ListIn(2), Len, Flags(0xf)] volume(long vmsplice);
279 move_pages [Number, Len, Pointer, Pointer, Pointer, AnyFlags] kernel;
280 utimensat [Dir, Path, Reads(32), Flags(0x1100)] volume(int utimensat) split(Drained)
    kind(Utimes);
281 epoll_pwait [Fd, Pointer, Len, Number, Reads(8), Len] volume(int epoll_pwait) numbers(Takes)
    split(Own);
282 signalfd [Fd, Reads(8), Len] kernel numbers(Gives);
283 timerfd_create [Number, Flags(0x80800)] kernel numbers(Gives);
284 eventfd [Number] kernel numbers(Gives);
285 fallocate [Fd, Flags(0xff), Offset, Offset] volume(int fallocate) split(Own) kind(Fallocate);
286 timerfd_settime [Fd, Flags(0x3), Reads(32), Writes(32)] kernel numbers(Takes);
287 timerfd_gettime [Fd, Writes(32)] kernel numbers(Takes);
288 accept4 [Fd, Pointer, Updates(4), Flags(0x80800)] volume(int accept4) numbers(Gives);
289 signalfd4 [Fd, Reads(8), Len, Flags(0x80800)] kernel numbers(Gives);
290 eventfd2 [Number, Flags(0x80801)] kernel numbers(Gives);
291 epoll_create1 [Flags(0x80000)] kernel numbers(Gives);
292 dup3 [Fd, Fd, Flags(0x80000)] volume(int dup3) numbers(Replaces) split(Own) kind(Dup);
293 pipe2 [Writes(8), Flags(0x84880)] kernel numbers(Pair);
294 inotify_init1 [Flags(0x80800)] kernel numbers(Gives);
295 preadv [Fd, ListOut(2), Len, Offset] volume(long preadv) split(Own) kind(Preadv);
296 pwritev [Fd, ListIn(2), Len, Offset] volume(long pwritev) split(Own) kind(Pwritev);
297 rt_tgsigqueueinfo [Number, Number, Number, Reads(128)] kernel;
298 perf_event_open [Pointer, Number, Number, Fd, AnyFlags] kernel numbers(Gives);
299 recvmmsg [Fd, Pointer, Len, AnyFlags, Updates(16)] volume(int recvmmsg) numbers(Makes);
300 fanotify_init [AnyFlags, AnyFlags] kernel numbers(Gives);
301 fanotify_mark [Fd, AnyFlags, Number, Dir, Path]
    refused(int fanotify_mark, "EOPNOTSUPP", "nobody is told of changes on a volume") numbers(Takes)
   ;
302 prlimit64 [Number, Number, Reads(16), Writes(16)] volume(int prlimit64) split(Own);
303 name_to_handle_at [Dir, Path, Pointer, Writes(4), AnyFlags]
    refused(int name_to_handle_at, "EOPNOTSUPP", "there are no file handles");
304 open_by_handle_at [Fd, Pointer, AnyFlags]
    refused(int open_by_handle_at, "EOPNOTSUPP", "there are no file handles") numbers(Gives);
305 clock_adjtime [Number, Updates(208)] kernel;
306 syncfs [Fd] volume(int syncfs) split(Own) kind(Sync);
307 sendmmsg [Fd, Pointer, Len, AnyFlags] volume(int sendmmsg) numbers(Takes) split(Own);
308 setns [Fd, AnyFlags] volume(long setns) numbers(Takes);
309 getcpu [Writes(4), Writes(4)] kernel;
310 process_vm_readv [Number, ListOut(2), Len, Pointer, Len, Flags(0x0)]
    volume(long process_vm_readv);
311 process_vm_writev [Number, ListIn(2), Len, Pointer, Len, Flags(0x0)]
    volume(long process_vm_writev);
312 kcmp [Number, Number, Number, Number, Number] kernel numbers(Looks);
313 finit_module [Fd, Text, AnyFlags] kernel numbers(Takes);
314 sched_setattr [Number, Pointer, Flags(0x0)] kernel;
315 sched_getattr [Number, Pointer, Len, Flags(0x0)] kernel;
316 renameat2 [Dir, Path, Dir, Path, Flags(0x7)] volume(int renameat2) split(Own) kind(Rename);
317 seccomp [Number, AnyFlags, Pointer] volume(int seccomp) numbers(Looks);
318 getrandom [Out(1), Len, Flags(0x7)] volume(long getrandom);
319 memfd_create [Text, AnyFlags] kernel numbers(Gives);
320 kexec_file_load [Fd, Fd, Len, Text, AnyFlags] kernel numbers(Looks);
321 bpf [Number, Pointer, Len] kernel numbers(Makes);
322 execveat [Dir, Path, Texts, Texts, Flags(0x11100)] volume(int execveat) numbers(HandsOn)
    split(HandedOver);
323 userfaultfd [AnyFlags] kernel numbers(Gives);
324 membarrier [Number, AnyFlags, Number] kernel;
325 mlock2 [Address, Len, Flags(0x1)] volume(int mlock2);
326 copy_file_range [Fd, Updates(8), Fd, Updates(8), Len, Flags(0x0)] volume(long copy_file_range)
    split(Own) kind(CopyRange);
327 preadv2 [Fd, ListOut(2), Len, Offset, Number, Flags(0x1ff)] volume(long preadv2) split(Own)
    kind(Preadv);
328 pwritev2 [Fd, ListIn(2), Len, Offset, Number, Flags(0x1ff)] volume(long pwritev2) split(Own)
    kind(Pwritev);
329 pkey_mprotect [Address, Len, Number, Number]
    refused(int pkey_mprotect, "EINVAL", "pages of a mapping of a volume cannot get a key");
330 pkey_alloc [Flags(0x0), Number] kernel;
331 pkey_free [Number] kernel;
332 statx [Dir, Path, Flags(0x7900), AnyFlags, Writes(256)] volume(int statx) split(Own) kind(Stat)
   ;
333 io_pgetevents [Number, Number, Number, Pointer, Reads(16), Pointer] kernel;
334 rseq [Address, Len, AnyFlags, Number] kernel;
335 uretprobe [] kernel;
336 uprobe [] kernel;
424 pidfd_send_signal [Fd, Number, Reads(128), AnyFlags] kernel numbers(Takes);
425 io_uring_setup [Number, Updates(120)]
    refused(int io_uring_setup, "ENOSYS", "the kernel's own asynchronous calls do not see a volume")
    split(Own)
    as [io_uring_setup io_uring_queue_init io_uring_queue_init_mem io_uring_queue_init_params];
426 io_uring_enter [Fd, Number, Number, AnyFlags, Pointer, Len] kernel numbers(Looks);
427 io_uring_register [Fd, Number, Pointer, Len] kernel numbers(Looks);
428 open_tree [Dir, Path, AnyFlags]
    refused(int open_tree, "EPERM", "no part of a volume is mounted elsewhere") numbers(Gives);
429 move_mount [Dir, Path, Dir, Path, AnyFlags]
    refused(int move_mount, "EINVAL", "nothing is mounted on a volume");
430 fsopen [Text, Flags(0x1)] kernel numbers(Gives);
431 fsconfig [Fd, Number, Text, Pointer, Number] kernel numbers(Takes);
432 fsmount [Fd, Flags(0x1), AnyFlags] kernel numbers(Gives);
433 fspick [Dir, Path, AnyFlags]
    refused(int fspick, "EINVAL", "a volume is no mount of the kernel's") numbers(Gives);
434 pidfd_open [Number, AnyFlags] kernel numbers(Gives);
435 clone3 [Pointer, Len] watched(Processes) numbers(Thread);
436 close_range [Number, Number, Flags(0x6)] volume(int close_range) numbers(ClosesRange) split(Own)
    kind(Close);
437 openat2 [Dir, Path, Reads(24), Len] volume(long openat2) numbers(Gives) kind(Open);
438 pidfd_getfd [Fd, Number, Flags(0x0)] volume(int pidfd_getfd) numbers(Gives);
439 faccessat2 [Dir, Path, Flags(0x7), Flags(0x1300)] volume(int faccessat2) kind(Access);
440 process_madvise [Fd, Pointer, Len, Number, Flags(0x0)] kernel numbers(Takes);
441 epoll_pwait2 [Fd, Pointer, Len, Reads(16), Reads(8), Len] volume(int epoll_pwait2)
    numbers(Takes) split(Own);
442 mount_setattr [Dir, Path, AnyFlags, Pointer, Len]
    refused(int mount_setattr, "EINVAL", "a volume is no mount of the kernel's");
443 quotactl_fd [Fd, Number, Number, Pointer] unserved("a volume has no quotas");
444 landlock_create_ruleset [Pointer, Len, AnyFlags] kernel numbers(Gives);
445 landlock_add_rule [Fd, Number, Pointer, Flags(0x0)] kernel numbers(Looks);
446 landlock_restrict_self [Fd, AnyFlags] kernel numbers(Looks);
447 memfd_secret [AnyFlags] kernel numbers(Gives);
448 process_mrelease [Fd, Flags(0x0)] kernel numbers(Takes);
449 futex_waitv [Pointer, Len, Flags(0x0), Reads(16), Number] kernel;
450 set_mempolicy_home_node [Address, Len, Number, Flags(0x0)] volume(int set_mempolicy_home_node);
451 cachestat [Fd, Reads(16), Writes(40), Flags(0x0)] unserved("a volume has no page cache");
452 fchmodat2 [Dir, Path, Mode, Flags(0x1100)] volume(int fchmodat2) split(Drained) kind(Chmod);
453 map_shadow_stack [Address, Len, AnyFlags] kernel;
454 futex_wake [Pointer, Number, Number, AnyFlags] kernel;
455 futex_wait [Pointer, Number, Number, AnyFlags, Reads(16), Number] kernel;
456 futex_requeue [Pointer, AnyFlags, Number, Number] kernel;
457 statmount [Pointer, Pointer, Len, AnyFlags] kernel;
458 listmount [Pointer, Pointer, Len, AnyFlags] kernel;
459 lsm_get_self_attr [Number, Pointer, Updates(4), AnyFlags] kernel;
460 lsm_set_self_attr [Number, Pointer, Len, AnyFlags] kernel;
461 lsm_list_modules [Pointer, Updates(4), Flags(0x0)] kernel;
462 mseal [Address, Len, Flags(0x0)] kernel;
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
