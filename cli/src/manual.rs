//! Shell completions and manual pages.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::{Failure, files};
use clap::CommandFactory;
use clap_mangen::Man;
use std::io::Write;
use std::path::Path;

/// Runs `ebbtide completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ebbtide", &mut script);
    print(&script)
}

/// Runs `ebbtide man`.
pub(crate) fn man(cli: &Cli, args: &ManArgs) -> Result<(), Failure> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let Some(folder) = &args.into else { return print(&page(program)?) };
    files::make_folder(folder)?;
    for command in program.get_subcommands().cloned().chain([program.clone()]) {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        write(&folder.join(format!("{name}.1")), &cli.db, &page(command)?)?;
    }
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

fn write(path: &Path, database: &Path, page: &[u8]) -> Result<(), Failure> {
    let file = files::NewFile::create(path, database)?;
    let mut sink = file.sink()?;
    sink.write_all(page).and_then(|()| sink.flush())?;
    drop(sink);
    file.keep()
}

fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    out.write_all(text).and_then(|()| out.flush()).map_err(Failure::from)
}
