//! The command line `ebbtide`; see `ebbtide_query::cli`.

fn main() -> std::process::ExitCode {
    ebbtide_query::cli::main()
}
