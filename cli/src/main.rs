//! The program `ebbtide`.

use std::process::ExitCode;

/// Many threads allocate and free large buffers here: the system's allocator holds up to twice as much memory as is in
/// use, and is slower for small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(ebbtide_cli::run(std::env::args_os()))
}
