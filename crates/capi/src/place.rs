//! Places.

use std::ffi::{CString, c_char, c_int, c_uint};

use flex::{Error, Place, Result};
use pmem::Class;
use rustix::io::Errno;

use crate::arguments::{out, path};
use crate::handles::Handles;
use crate::return_value::call;

const PAGE: c_uint = 1;

pub struct Opened {
    place: Place,
    why: CString,
}

static PLACES: Handles<Opened> = Handles::new(1);

/// The place of a handle.
pub fn place(handle: usize) -> Result<&'static Place> {
    opened(handle).map(|opened| &opened.place)
}

fn opened(handle: usize) -> Result<&'static Opened> {
    PLACES.get(handle).ok_or(Error::Invalid("the place is NULL, closed, or no place"))
}

/// There are too many of something open.
pub fn too_many<T>(_: T) -> Error {
    Error::System("65,536 are open; close some".to_owned(), Errno::MFILE)
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_open_place(
    at: *const c_char,
    flags: c_uint,
    to: *mut usize,
) -> c_int {
    call("solera_open_place", || {
        // SAFETY: the caller's, as the header says.
        let (at, to) = unsafe { (path(at)?, out(to)?) };
        if flags & !PAGE != 0 {
            return Err(Error::Invalid("a flag is unknown"));
        }
        let place = Place::open(at, flags & PAGE != 0)?;
        let why = CString::new(place.class().1.replace('\0', "?")).unwrap_or_default();
        *to = PLACES.add(Opened { place, why }).map_err(too_many)?;
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_close_place(handle: usize) -> c_int {
    call("solera_close_place", || {
        opened(handle)?;
        drop(PLACES.take(handle));
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_place_class(handle: usize, why: *mut *const c_char) -> c_int {
    call("solera_place_class", || {
        let opened = opened(handle)?;
        // SAFETY: the caller's, as the header says.
        if let Some(why) = unsafe { why.as_mut() } {
            *why = opened.why.as_ptr();
        }
        Ok(match opened.place.class().0 {
            Class::Byte => 0,
            Class::CacheLine => 1,
            Class::Volatile => 2,
            Class::Page => 3,
        })
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_fence(handle: usize) -> c_int {
    call("solera_fence", || place(handle)?.fence().map(|()| 0))
}
