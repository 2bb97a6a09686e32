//! Mappings, and the descriptors of the region that a process has.

use crate::Result;
use crate::data::mapping::{self, PageFault};
use crate::medium::layout::{BLOCK, CHUNK};
use crate::volume::Volume;
use pmem::Access;
use rustix::io::Errno;
use vfs::{Changing, Desc, FileRef, Fill, Kind, Mapped, Maps, Piece};

impl Maps for Volume {
    fn map(&self, desc: Desc, range: (u64, u64), mapped: Mapped, fill: Fill) -> Result<Vec<Piece>> {
        let places = || Ok((self.opened(desc)?.node, range));
        self.paged(Access::Store, places, || {
            let engine = self.call()?;
            let opened = engine.opened(desc)?;
            let fill = match fill {
                Fill::All => mapping::Fill::All,
                Fill::None => mapping::Fill::None,
                Fill::Faulted { at, least } => {
                    let (offset, end) = (range.0, range.0.saturating_add(range.1));
                    let within = (offset.div_ceil(BLOCK), end / BLOCK);
                    let fault =
                        PageFault { page: at / BLOCK, within, least: least.div_ceil(BLOCK) };
                    let _exclusive = engine.exclusive();
                    return engine.map_faulted(opened.node, &fault, mapped);
                }
            };
            if opened.kind != Kind::File || opened.flags.path_only() {
                return Err(Errno::NODEV);
            }
            let _exclusive = engine.exclusive();
            engine.map_range(opened.node, range, mapped, fill)
        })
    }

    fn region_descriptor(&self, _: FileRef) -> (i32, Changing) {
        let changing = if self.region.writable() && self.check_writable().is_ok() {
            Changing::Here
        } else if self.is_unchanging() {
            Changing::Nowhere
        } else {
            Changing::Elsewhere
        };
        (self.region.fd(), changing)
    }

    fn region_address(&self, _: FileRef) -> usize {
        self.region.base() as usize
    }

    fn can_map(&self, _: FileRef) -> (usize, bool) {
        if self.is_recovered_view() {
            return (0, false);
        }
        let unit = self.region.map_unit();
        let unit = if unit == BLOCK || unit == CHUNK { unit as usize } else { 0 };
        (unit, self.region.maps_pages_privately())
    }

    fn vacate(&self, number: i32, replace: &mut dyn FnMut() -> Result<()>) -> Result<i32> {
        if number == self.region.fd() {
            self.region.vacate_fd()?;
            replace()?;
            return Ok(self.region.fd());
        }
        if number == self.shadow_descriptor() {
            self.volatile_map().vacate_fd()?;
            replace()?;
            return Ok(self.shadow_descriptor());
        }
        if number != self.liveness.descriptor() {
            return Err(Errno::BADF);
        }
        self.liveness.vacate(replace)?;
        Ok(self.liveness.descriptor())
    }
}
