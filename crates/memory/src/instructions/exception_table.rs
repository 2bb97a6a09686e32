//! The exception table: which instructions may fault, and where a fault in them goes on.
//!
//! Every instruction of this crate that touches the region or the caller's memory is listed in the
//! section `solera_extable`: three 32-bit distances (each relative to its own place) to the first
//! byte of a guarded range of code, to the byte after it, and to the landing address.
//!
//! The section is merged by the linker over all objects of one executable or shared library and is
//! flagged `R` (retain), so that garbage collection of sections cannot drop it. The table belongs
//! to one linked object.
//!
//! Nothing here locks or allocates but [`expect_faults`]: a signal handler looks in the table.

use std::arch::global_asm;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Emits the table entry for the code between two local labels; used inside `asm!` templates.
macro_rules! guarded {
    ($first:literal, $end:literal, $landing:literal) => {
        concat!(
            ".pushsection solera_extable,\"aR\",@progbits\n",
            ".balign 4\n",
            ".long ",
            $first,
            " - .\n.long ",
            $end,
            " - .\n.long ",
            $landing,
            " - .\n",
            ".popsection\n"
        )
    };
}
pub(crate) use guarded;

/// One guarded range; every field is a distance from the field's own address.
#[repr(C)]
struct Entry {
    first: i32,
    end: i32,
    landing: i32,
}

const _: () = assert!(size_of::<Entry>() == 12 && align_of::<Entry>() == 4);

// Each linked object must find its own table, whatever linker merged it.
global_asm!(".hidden __start_solera_extable", ".hidden __stop_solera_extable");

unsafe extern "C" {
    static __start_solera_extable: Entry;
    static __stop_solera_extable: Entry;
}

/// The address a table field points at.
fn target(field: &i32) -> usize {
    (std::ptr::from_ref(field) as usize).wrapping_add_signed(*field as isize)
}

/// A guarded range, and where a fault in it goes on.
type Range = (usize, usize, usize);

/// The table in ascending order, in memory that is never freed; null until faults are expected.
static SORTED: AtomicPtr<Range> = AtomicPtr::new(std::ptr::null_mut());
/// Where guarded code begins and ends; 0 until a fault has asked.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// The linker's table: in no order.
fn table() -> &'static [Entry] {
    let first = &raw const __start_solera_extable;
    let end = &raw const __stop_solera_extable;
    let count = (end as usize - first as usize) / size_of::<Entry>();
    // SAFETY: the linker defines both symbols around the merged section, which holds only entries.
    unsafe { std::slice::from_raw_parts(first, count) }
}

fn range(entry: &Entry) -> Range {
    (target(&entry.first), target(&entry.end), target(&entry.landing))
}

/// Guarded instructions are going to fault often: a handler finds their ranges in order from here
/// on. Not at a process's start: to sort some thousand ranges is a good part of that.
pub(crate) fn expect_faults() {
    static SORTING: Once = Once::new();
    SORTING.call_once(|| {
        let mut sorted: Vec<Range> = table().iter().map(range).collect();
        sorted.sort_unstable();
        SORTED.store(sorted.leak().as_mut_ptr(), Ordering::Release);
    });
}

/// Whether guarded code may be there. The faults of a program's own code, which may be many, end
/// here.
fn is_near(rip: usize) -> bool {
    if END.load(Ordering::Acquire) == 0 {
        // Handlers of several threads may find this at once: they find the same.
        let bounds = table()
            .iter()
            .map(range)
            .fold((usize::MAX, 0), |(begin, end), range| (begin.min(range.0), end.max(range.1)));
        BEGIN.store(bounds.0, Ordering::Relaxed);
        END.store(bounds.1, Ordering::Release);
    }
    (BEGIN.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&rip)
}

/// The landing address for a fault at instruction `rip`, if that instruction is guarded.
pub(crate) fn landing_for(rip: usize) -> Option<usize> {
    if !is_near(rip) {
        return None;
    }
    let sorted = SORTED.load(Ordering::Acquire);
    let found = if sorted.is_null() {
        table().iter().map(range).find(|range| (range.0..range.1).contains(&rip))
    } else {
        // SAFETY: leaked by `expect_faults`, with as many ranges as the table has.
        let sorted = unsafe { std::slice::from_raw_parts(sorted, table().len()) };
        let behind = sorted.partition_point(|range| range.0 <= rip);
        sorted.get(behind.checked_sub(1)?).copied().filter(|range| rip < range.1)
    };
    found.map(|range| range.2)
}

thread_local! {
    /// The address of this thread's last fault in a guarded instruction.
    static LAST_FAULT: Cell<usize> = const { Cell::new(0) };
}

/// A guarded access of this thread has faulted at this address.
pub(crate) fn set_last_fault(address: usize) {
    LAST_FAULT.set(address);
}

/// The same as [`take_last_fault`], which may ask again.
pub(crate) fn last_fault() -> usize {
    LAST_FAULT.get()
}

/// Where this thread's last guarded access that faulted did so; 0 if that was asked already.
pub fn take_last_fault() -> usize {
    LAST_FAULT.replace(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guarded_instruction_is_found() {
        assert!(!table().is_empty());
        each_is_found();
        expect_faults();
        assert!(!SORTED.load(Ordering::Acquire).is_null());
        each_is_found();
    }

    fn each_is_found() {
        for entry in table() {
            let (first, end) = (target(&entry.first), target(&entry.end));
            let landing = Some(target(&entry.landing));
            assert_eq!((landing_for(first), landing_for(end - 1)), (landing, landing));
            let others = table()
                .iter()
                .filter(|other| (target(&other.first)..target(&other.end)).contains(&end));
            assert_eq!(landing_for(end).is_some(), others.count() > 0, "{end:#x}");
        }
        assert_eq!(landing_for(0), None);
        assert_eq!(landing_for(usize::MAX), None);
    }
}
