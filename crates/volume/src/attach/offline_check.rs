//! `fsck` and repair of a volume by its path: looks at it without attaching it, or attaches it as a
//! check needs it. What is looked at and mended is `check/`'s.

use crate::Result;
use crate::attach::view::View;
use crate::attach::{AttachOptions, attach, attach_to_check, attach_to_repair, pager};
use crate::check::fsck::{
    FsckOptions, FsckReport, Look, compare, damaged_slot, short_region, stale_copy,
};
use crate::check::repair::{Repair, RepairOptions, RepairReport};
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{LINE, STATE, STATE_REPAIR};
use crate::recovery::fault::{Action, FsckFault, Remedy};
use crate::recovery::mark::{Depth, Found, Mark, all_threads};
use rustix::io::Errno;
use std::path::Path;
use std::time::Instant;

/// Attempts to catch a volume that other processes attach and detach meanwhile.
const TRIES: usize = 5;

/// Checks the volume at `path` without changing it. `progress` hears items of work done and known.
/// An error means that it could not be checked.
pub fn fsck(
    path: &Path,
    options: &FsckOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<FsckReport, VolumeError> {
    let begun = Instant::now();
    let system = |errno| {
        let what = match errno {
            Errno::TIMEDOUT => "waiting for a process that was stopped in a call",
            _ => "reading it",
        };
        VolumeError::system("check", path, what, errno)
    };
    if pager::is_paged(path, "check")?
        && let Ok(volume) = attach(path, &AttachOptions::default())
    {
        let alone = volume.is_alone().map_err(system)?;
        // What it reads is brought.
        let mut look = volume.check_in_use(options.depth(), progress).map_err(system)?;
        if alone {
            // Nobody has waited.
            look.pause = None;
        }
        volume.leave().map_err(system)?;
        return Ok(FsckReport::new(look, options, begun));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let view = View::open_to_check(path)?;
        if !view.in_use {
            let look = check_view(&view, options.depth(), progress)
                .map_err(|errno| cut_short(&view, path).unwrap_or_else(|| system(errno)))?;
            return Ok(FsckReport::new(look, options, begun));
        }
        drop(view);
        match attach_to_check(path) {
            Ok(volume) => {
                let look = volume.check_in_use(options.depth(), progress).map_err(system)?;
                return Ok(FsckReport::new(look, options, begun));
            }
            // The processes that had attached it are gone: it can be viewed now.
            Err(error) if tries < TRIES && error.kind() != ErrorKind::InUse => {}
            Err(error) => return Err(error),
        }
    }
}

/// Checks the volume at `path`, mends what can be mended, and checks again. No process may have it
/// attached.
pub fn repair(
    path: &Path,
    options: &RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<RepairReport, VolumeError> {
    let system = |errno| VolumeError::system("repair", path, "writing it", errno);
    let mut report = RepairReport::default();
    let (look, begun) = look_alone(path, options, progress)?;
    let whole = look.faults.is_empty();
    if whole || look.faults.iter().any(|fault| fault.code == "region-truncated") {
        report.after = FsckReport::new(look, &options.check, begun);
        return Ok(report);
    }
    let known = look.faults;
    let volume = attach_to_repair(path)?;
    let guard = volume.liveness.lock_attach().map_err(system)?;
    if !volume.is_alone().map_err(system)? {
        return Err(in_use(path));
    }
    let allowed = if options.salvage { Remedy::Salvage } else { Remedy::Repair };
    let known = known.into_iter().filter(|fault| fault.action == Action::Attach);
    let mut repair = Repair::new(&volume, allowed, known.collect());
    let sound = repair.run(&mut report.orphans, progress);
    report.mended = repair.mended;
    if sound != Ok(true) {
        volume.mark_damaged().map_err(system)?;
    }
    sound.map_err(system)?;
    drop(guard);
    volume.leave().map_err(system)?;
    drop(volume);
    let (look, begun) = look_alone(path, options, progress)?;
    report.after = FsckReport::new(look, &options.check, begun);
    // A fault that the attach should have put right, and did not, is no success.
    let left = &report.after.faults;
    report.mended.retain(|mended| !left.contains(mended));
    Ok(report)
}

fn in_use(path: &Path) -> VolumeError {
    let advice = "end the programs that use it (`solera detach` lists them); to check it, leave \
                  --repair out";
    VolumeError::new(ErrorKind::InUse, "repair", path, "others have it attached", advice)
}

/// Looks at a volume that no process has attached.
fn look_alone(
    path: &Path,
    options: &RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<(Look, Instant), VolumeError> {
    let begun = Instant::now();
    if options.check.read_data && pager::is_paged(path, "repair")? {
        let found = "its data lies on several nodes, and is not read beside a repair";
        let advice = "repair it first, then read it: solera fsck --read-data";
        return Err(VolumeError::new(ErrorKind::Unsupported, "repair", path, found, advice));
    }
    let view = View::open_to_check(path)?;
    if view.in_use {
        return Err(in_use(path));
    }
    let look = check_view(&view, options.check.depth(), progress);
    look.map(|look| (look, begun)).map_err(|errno| {
        let system = || VolumeError::system("repair", path, "reading it", errno);
        cut_short(&view, path).unwrap_or_else(system)
    })
}

/// Checks a volume that no process has attached.
pub(crate) fn check_view(
    view: &View,
    depth: Depth,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Look> {
    let volume = &view.volume;
    let mut faults = check_fixed(view)?;
    for lane in view.undo_lanes() {
        let place = format!("lane {lane}");
        if view.is_clean() {
            let meaning =
                "its transaction number is damaged; the next attach for writing repairs it";
            faults.push(FsckFault::repaired_by_attach("lane-header", place, meaning));
            continue;
        }
        let (remedy, meaning) = if volume.lane_is_empty(lane)? {
            (Remedy::Repair, "its transaction number is damaged; nothing was open in it")
        } else {
            (Remedy::Salvage, "its transaction number is damaged: what was open cannot be undone")
        };
        let (meaning, action) = (meaning.into(), Action::Lane(lane));
        faults.push(FsckFault { code: "lane-header", place, meaning, remedy, action });
    }
    // A damaged saved map is not looked at any further: it is rebuilt at attach.
    let mut saved = false;
    if view.is_clean() {
        let crc = view.state.map_or(0, |state| state.free_map_crc);
        saved = volume.load_free_map(crc) == Ok(true);
        if !saved {
            let meaning = "it fails its checksum; the next attach rebuilds it";
            let place = "the saved free map".into();
            faults.push(FsckFault::repaired_by_attach("free-map", place, meaning));
        }
    }
    let mut mark = Mark::new(volume, depth, all_threads());
    mark.run(&[], progress);
    if saved {
        compare(volume, &mut mark)?;
    }
    faults.append(&mut mark.found.faults);
    let beneath = volume.beneath().map(|found| (found, volume.size()));
    let Found { lost, counts, .. } = mark.found;
    Ok(Look { faults, lost, counts, pause: None, beneath })
}

/// Why a region with too little left cannot be checked.
pub(crate) fn cut_short(view: &View, path: &Path) -> Option<VolumeError> {
    let (has, wants) = (view.volume.region.len(), view.volume.size());
    (has < wants).then(|| {
        let found = format!(
            "the volume has {wants} bytes, its file or device only {has}: nothing that could be \
             checked is left"
        );
        let advice = "put the missing end back, or restore it from a copy";
        VolumeError::new(ErrorKind::Truncated, "check", path, found, advice)
    })
}

/// The superblocks and the state line.
fn check_fixed(view: &View) -> Result<Vec<FsckFault>> {
    let mut faults: Vec<_> =
        stale_copy(&view.found).into_iter().chain(short_region(&view.volume)).collect();
    if view.state.is_err() {
        faults.push(FsckFault::repaired_by_attach(
            "state",
            "the state block".into(),
            "both slots are damaged; the next attach recovers the volume",
        ));
    } else if view.state.is_ok_and(|state| state.clean == STATE_REPAIR) {
        faults.push(FsckFault::repaired_by_attach(
            "repair-unfinished",
            "the state block".into(),
            "a repair was interrupted; until one has been finished, the volume can only be read",
        ));
    } else if view.is_clean() {
        // Only an orderly end says that no slot can have been torn.
        let mut bytes = [0; LINE as usize];
        view.volume.region.read(STATE, &mut bytes)?;
        for slot in 0..2 {
            if damaged_slot(&bytes[slot * 32..slot * 32 + 32]) {
                let place = format!("slot {slot} of the state block");
                let meaning = "it is damaged; the other one counts";
                faults.push(FsckFault::repaired_by_attach("state-slot", place, meaning));
            }
        }
    }
    Ok(faults)
}
