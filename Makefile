# The few verbs of the project. Each target installs what it needs on Debian 12 with Rust, and can be
# called by itself.

CARGO ?= cargo
# Where `make install` puts what `make build` has built; DESTDIR stands before all of it.
PREFIX ?= /usr/local
BUILT ?= target/release
# Debian's own Python, by the name of its folders.
PYTHON = $(notdir $(realpath /usr/bin/python3))
# Where mount(8) finds helpers, and zsh completions.
SBIN ?= /sbin
ZSH = $(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml)
# The date of what is built: the last commit's, or today's where there is no git.
DATE = $(shell git log -1 --format=%cs 2> /dev/null || date +%F)

.PHONY: help build install uninstall deb tarball book demo demo-ddmap test test-long check times test-ddmap test-vm test-bare test-deb lint deny bench benchmarks bench-guard servers ageing mapped split flac forks go-calls watches starts ddmap ddmap-handover ddmap-programs baseline support setup setup-tests clean

help:
	@echo 'make demo       build, then run sqlite3 unchanged on a volume, beside tmpfs and the disk'
	@echo 'make demo-ddmap build, then run sqlite3 on a database twice as large as its node'
	@echo 'make build      the command, the libraries: target/release'
	@echo 'make install    what was built to $(PREFIX), and the helper of mount -t fuse.solera to /sbin (as root)'
	@echo 'make deb        Debian packages of what `make install` installs: target/debian'
	@echo 'make tarball    the same files as a tarball, with its SHA256 and a list of what is in it (SBOM)'
	@echo 'make book       docs/ as a book: target/book; dead links fail (installs mdbook)'
	@echo 'make test       formatting, lints, all tests, real programs (installs those that are missing)'
	@echo 'make check      formatting, lints, and the unit tests of the crates that differ from upstream (BASE=revision)'
	@echo 'make times      what each stage, test program and test takes: after make test, as a table (minutes)'
	@echo 'make test-long  the same as make test, with more states, operations, repetitions; random crashes for SOLERA_MINUTES (10)'
	@echo 'make test-ddmap nodes in network namespaces, each killed, stopped, cut off; all programs on a domain (as root)'
	@echo 'make test-vm    20 machine crashes on emulated NVDIMMs, in a QEMU guest (in make test: 1), programs, NFS and swap beside ddmap there'
	@echo 'make test-bare  demo and tests in a bare Debian 12 made by debootstrap, in a clone below a closed home (as root)'
	@echo 'make test-deb   the packages in a bare Debian 12, 13, sid: upgraded from 0.2, installed, used, removed, purged; the image of docs/containers.md (as root)'
	@echo 'make lint       formatting and lints only'
	@echo 'make deny       licences and sources of the dependencies (installs cargo-deny); remembers that they are in order'
	@echo 'make mutate     leaves out each flush and fence of the volume in turn; the explorer must miss it (an hour)'
	@echo 'make support    docs/support.md, from the table and the symbols of the library and of glibc'
	@echo 'make benchmarks whole programs and single calls beside tmpfs, ext4 and XFS; a page: target/benchmarks.html (as root, an hour)'
	@echo 'make bench-guard  programs on this build and on an older one, in turns; fails if one is slower (BASE=revision or folder, ONLY=names)'
	@echo 'make baseline   crates/preload/tests/costs*.txt: what key operations execute, which a test guards'
	@echo 'make servers    docs/figures/servers.md: PostgreSQL, MariaDB, redis, processes beside each other (as root, minutes)'
	@echo 'make ageing     docs/figures/ageing.md: ageing a volume beside ext4 and XFS (as root, an hour)'
	@echo 'make mapped     docs/figures/mapped.md: mapped files on a fresh and on an aged volume, and on tmpfs (as root, minutes)'
	@echo 'make split      docs/figures/split.md: programs over tmpfs, ext4 and XFS beside the kernel (as root, minutes)'
	@echo 'make go-calls   the calls of a static Go program, on a volume and on tmpfs (a minute; needs go)'
	@echo 'make starts     programs that start as children, on a volume and natively (a minute)'
	@echo 'make watches    changes in watched directories, on a volume and on tmpfs (a minute)'
	@echo 'make forks      waits of threads beside one that forks, on a volume and without it (some minutes)'
	@echo 'make flac       docs/figures/flac.md: the cache over slow memory, emulated (as root, minutes)'
	@echo 'make ddmap      docs/figures/ddmap.md: volumes larger than their node, on loopback (a minute or two)'
	@echo 'make ddmap-handover  how long a volume takes to change hands, 1 GiB touched (a minute or two)'
	@echo 'make ddmap-programs  the same page: stores of keys and values, half local, beside sshfs (as root; half an hour)'
	@echo 'make bench      single calls on a volume, on tmpfs, and the limit of the memory'

support: setup
	UPDATE_SUPPORT=1 $(CARGO) test --release -p solera-preload --test interposition coverage::
	scripts/wrap.py docs/support.md

baseline: setup
	UPDATE_COSTS=1 $(CARGO) test --release -p solera-preload --test interposition costs:: -- --nocapture

setup:
	@scripts/setup.sh

setup-tests:
	@scripts/setup.sh --tests --vm

build: setup
	$(CARGO) build --release --workspace
	crates/capi/link.sh target/release/libsolera.a target/release

install:
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/solera $(BUILT)/solera-bench
	install -D -m 755 $(BUILT)/libsolera_preload.so $(DESTDIR)$(PREFIX)/lib/libsolera_preload.so
	install -D -m 755 $(BUILT)/solera-host $(DESTDIR)$(PREFIX)/lib/solera-host
	install -D -m 755 $(BUILT)/libsolera_align.so $(DESTDIR)$(PREFIX)/lib/libsolera_align.so
	install -D -m 755 $(BUILT)/libsolera_profile.so $(DESTDIR)$(PREFIX)/lib/libsolera_profile.so
	umask 022 && crates/capi/link.sh $(BUILT)/libsolera.a $(DESTDIR)$(PREFIX)/lib
	install -D -m 644 $(BUILT)/libsolera.a $(DESTDIR)$(PREFIX)/lib/libsolera.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include crates/capi/include/solera.h crates/capi/include/solera_sqlite.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/capi/solera.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/solera.pc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man3 crates/capi/solera.3
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 docs/man/solera-volume.5
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man7 docs/man/solera.7
	umask 022 && $(BUILT)/solera generate man --date $(DATE) $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(ZSH) \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(DESTDIR)$(PREFIX)/lib/systemd/system
	umask 022 && $(BUILT)/solera generate completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/solera
	umask 022 && $(BUILT)/solera generate completions zsh > $(DESTDIR)$(ZSH)/_solera
	umask 022 && $(BUILT)/solera generate completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/solera.fish
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|' packaging/solera-mount@.service.in \
		> $(DESTDIR)$(PREFIX)/lib/systemd/system/solera-mount@.service
	install -D -m 644 crates/capi/solera.py $(DESTDIR)$(PREFIX)/lib/$(PYTHON)/dist-packages/solera.py
	[ -n "$(DESTDIR)" ] || ldconfig
	install -d $(DESTDIR)$(SBIN)
	ln -sf $(PREFIX)/bin/solera $(DESTDIR)$(SBIN)/mount.fuse.solera

uninstall:
	rm -f $(DESTDIR)$(SBIN)/mount.fuse.solera $(DESTDIR)$(ZSH)/_solera
	cd $(DESTDIR)$(PREFIX) && rm -f bin/solera bin/solera-bench lib/libsolera_preload.so lib/solera-host lib/libsolera_align.so lib/libsolera_profile.so lib/libsolera.so lib/libsolera.so.0 lib/libsolera.a \
		lib/solera_vfs.so include/solera.h include/solera_sqlite.h lib/pkgconfig/solera.pc share/man/man3/solera.3 lib/$(PYTHON)/dist-packages/solera.py \
		share/man/man1/solera.1 share/man/man1/solera-*.1 share/man/man5/solera-volume.5 share/man/man7/solera.7 \
		share/bash-completion/completions/solera share/fish/vendor_completions.d/solera.fish lib/systemd/system/solera-mount@.service
	[ -n "$(DESTDIR)" ] || ldconfig

# Debian packages of what `install` installs, in target/debian.
PACKAGED = target/package
CARGO_DEB = 3.8.0

deb: build
	@scripts/setup.sh --packages
	@cargo-deb --version 2> /dev/null | grep -qxF $(CARGO_DEB) || $(CARGO) install --locked --debug --version $(CARGO_DEB) cargo-deb
	scripts/package.sh $(PACKAGED) target/debian

test-deb: deb
	@scripts/setup.sh --bare
	@tests/deb/run || [ $$? -eq 77 ]
	@tests/containers/image || [ $$? -eq 77 ]

CARGO_CYCLONEDX = 0.5.9

tarball: build
	@cargo-cyclonedx cyclonedx --version 2> /dev/null | grep -qF $(CARGO_CYCLONEDX) || $(CARGO) install --locked --debug --version $(CARGO_CYCLONEDX) cargo-cyclonedx
	scripts/tarball.sh

MDBOOK = 0.5.4

book: setup
	scripts/links.py
	@mdbook --version 2> /dev/null | grep -qF $(MDBOOK) || $(CARGO) install --locked --debug --version $(MDBOOK) mdbook
	mdbook build docs

demo: build
	@scripts/demo.sh

demo-ddmap: build
	@scripts/demo-ddmap.sh

test: setup-tests
	@scripts/test.sh

test-long: setup-tests
	@scripts/setup.sh --bare
	@SOLERA_TEST_LONG=1 scripts/test.sh

check: setup
	@scripts/check.sh $(BASE)

times: setup
	@scripts/times.py

test-ddmap: build setup-tests
	@tests/ddmap/run || [ $$? -eq 77 ]
	@DDMAP=64M tests/programs/run
	@DDMAP=half tests/programs/run

test-vm: build
	@scripts/setup.sh --vm
	@KILLS=$${KILLS:-20} CUTS=$${CUTS:-20} tests/vm/run || [ $$? -eq 77 ]
	@tests/vm/run programs || [ $$? -eq 77 ]
	@tests/vm/run nfs || [ $$? -eq 77 ]
	@tests/vm/run swap || [ $$? -eq 77 ]

test-bare: setup
	@scripts/setup.sh --bare
	@scripts/test-bare.sh || [ $$? -eq 77 ]

lint: setup
	$(CARGO) fmt --all --check
	scripts/style.sh
	scripts/layers.py
	scripts/crates.py --check
	scripts/links.py
	scripts/words.py
	$(CARGO) clippy --release --workspace --features solera-explorer/inject,solera-flac/inject --all-targets -- -D warnings

deny: setup
	@scripts/deny.sh --remember

mutate: setup
	for room in $$(ls -d crates/volume/src/*/); do SOLERA_MUTATE=$$room \
		$(CARGO) test --release -p solera-explorer --features inject --test mutate -- --nocapture \
		|| exit 1; done

bench: build
	target/release/solera bench micro

benchmarks: build setup-tests
	target/release/solera bench programs --report target/benchmarks.html
	for mode in strict sync posix; do target/release/solera bench micro --mode $$mode || exit 1; done

# What is compared with: a git revision, which is built, or a folder with a build.
BASE ?=
ONLY ?= sqlite,leveldb,lmdb,git,tar,threads
bench-guard: build setup-tests
	crates/bench/scripts/guard.sh "$(BASE)" --only $(ONLY)

servers: build setup-tests
	crates/bench/scripts/servers.py

ageing: build setup-tests
	crates/bench/scripts/ageing.py

mapped: build setup-tests
	crates/bench/scripts/mapped.py

split: build setup-tests
	crates/bench/scripts/split.py

flac: build
	crates/bench/scripts/flac.py

go-calls: build
	crates/bench/scripts/go_calls.py

watches: build
	crates/bench/scripts/watches.py

starts: build
	crates/bench/scripts/starts.py

forks: build
	crates/bench/scripts/forks.py

ddmap: build
	crates/bench/scripts/ddmap.py

ddmap-handover: build
	crates/bench/scripts/ddmap_handover.py

ddmap-programs: build setup-tests
	crates/bench/scripts/ddmap_programs.py --ycsb

clean:
	$(CARGO) clean
