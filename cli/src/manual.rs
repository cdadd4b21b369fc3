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
    write_all(&program, folder, &cli.db)
}

/// The pages of a command and of those below it.
fn write_all(command: &clap::Command, folder: &Path, database: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    write(&folder.join(format!("{name}.1")), database, &page(command.clone())?)?;
    command.get_subcommands().try_for_each(|below| write_all(below, folder, database))
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
