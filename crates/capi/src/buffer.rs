//! Explicit buffers.

use std::ffi::{c_int, c_void};

use flex::{Buffer, Error, Result};

use crate::arguments::offset;
use crate::handles::Handles;
use crate::place::too_many;
use crate::return_value::call;

static BUFFERS: Handles<Buffer> = Handles::new(4);

fn buffer(handle: usize) -> Result<&'static Buffer> {
    BUFFERS.get(handle).ok_or(Error::Invalid("the buffer is NULL, freed, or no buffer"))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_alloc(size: usize) -> *mut c_void {
    call("solera_buffer_alloc", || {
        let handle = BUFFERS.add(Buffer::new(size)?).map_err(too_many)?;
        Ok(handle as *mut c_void)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_base(handle: usize) -> *mut c_void {
    call("solera_buffer_base", || Ok(buffer(handle)?.base().cast()))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_slide(handle: usize, at: i64) -> *mut c_void {
    call("solera_buffer_slide", || Ok(buffer(handle)?.slide(offset(at)?).cast()))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_fault(handle: usize) -> c_int {
    call("solera_buffer_fault", || buffer(handle)?.fault().map(|()| 0))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_detach(handle: usize) -> c_int {
    call("solera_buffer_detach", || buffer(handle)?.detach().map(|()| 0))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_buffer_free(handle: usize) {
    drop(BUFFERS.take(handle));
}
