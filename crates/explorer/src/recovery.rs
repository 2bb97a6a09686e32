//! Recovers what a crash left: now and then with one processor only, now and then under a trace, to
//! crash again inside the recovery, and recover that.

use crate::campaign::is_long;
use crate::image::{Image, Pinned, Recorder, Setting, Told};
use crate::oracle::check_volume;
use crate::states::{Limits, Overlay, Tracker};
use pmem::trace::Event;
use std::collections::HashSet;
use std::sync::Arc;
use volume::Volume;

/// One image in this many is recovered under a trace, and crashed again inside its recovery; in the
/// long run one in the second number. No multiples of the other periods: so that each meets each.
const NESTED_EVERY: [u64; 2] = [23, 11];
/// One image in this many is recovered by a process that may use one processor only.
const PINNED_EVERY: u64 = 16;
/// States taken inside one recovery.
const NESTED_MAX: u64 = 16;
/// Of the second recoveries one in so many is followed by a check of the whole volume.
const CHECKED_EVERY: u64 = 4;

/// An image that a crash left, and its recovery.
pub struct Recovery<'l> {
    image: &'l Image,
    setting: Setting,
    overlay: Overlay,
    /// What the recovery stored, if it was traced.
    events: Option<Vec<Event>>,
}

impl<'l> Recovery<'l> {
    /// Recovers an image: the one of this `number` among those of its workload.
    pub fn of(
        image: &'l Image,
        setting: Setting,
        overlay: Overlay,
        number: u64,
    ) -> Told<(Self, Arc<Volume>)> {
        let mut region = image.crashed(setting, &overlay)?;
        let recorder = number
            .is_multiple_of(NESTED_EVERY[usize::from(is_long())])
            .then(|| Arc::new(Recorder::default()));
        if let Some(recorder) = &recorder {
            region.set_hook(recorder.clone());
        }
        let pinned = number.is_multiple_of(PINNED_EVERY);
        let _pinned = pinned.then(|| Pinned::to((number / 2) as usize));
        let volume = image.attach(region, setting)?;
        let events = recorder.map(|recorder| recorder.trace.take());
        Ok((Self { image, setting, overlay, events }, volume))
    }

    /// Crashes inside the recovery and behind it, if it was traced; `check` judges what is
    /// recovered then. Gives the number of those crashes.
    pub fn crash_again(self, check: &dyn Fn(&Arc<Volume>) -> Told<()>) -> Told<u64> {
        let Self { image, setting, overlay, events } = self;
        let Some(mut events) = events else { return Ok(0) };
        events.push(Event::Mark("recovered".into()));
        let mut tracker = Tracker::new(&image.base, &events, setting.class);
        tracker.start_with(&overlay);
        let (mut seen, mut count, mut wrong) = (HashSet::new(), 0_u64, None);
        tracker.explore(0, &Limits::SPARSE, 1, &mut |state, _| {
            if !seen.insert(state.hash()) {
                return true;
            }
            count += 1;
            let again = || -> Told<()> {
                let region = image.crashed(setting, &state.overlay())?;
                let volume = image.attach(region, setting)?;
                check(&volume)?;
                let checked = count.is_multiple_of(CHECKED_EVERY);
                if checked { check_volume(&volume) } else { Ok(()) }
            };
            wrong = again().err().map(|text| format!("crashed again at {}: {text}", state.name));
            wrong.is_none() && count < NESTED_MAX
        });
        wrong.map_or(Ok(count), Err)
    }
}
