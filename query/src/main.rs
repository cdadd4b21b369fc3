//! The command line `ebbtide`; see `ebbtide_query::cli`.

/// Many threads make and free large buffers here: the system's allocator keeps up to twice as much of them as is in use,
/// and takes longer for the small ones.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ebbtide_query::cli::main()
}
