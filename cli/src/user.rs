//! `ebbtide user`.

use crate::args::server::{RoleName, UserAction};
use crate::args::{Cli, UserArgs};
use crate::serve::accounts_file;
use crate::{Failure, files, human, say};
use ebbtide_server::Role;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Bytes that are read for a password at most.
const PASSWORD_BYTES_MAX: u64 = 4096;

pub(crate) fn run(cli: &Cli, args: &UserArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("accounts are no part of a database: drop --read-only"));
    }
    if args.dbs.is_some() && cli.names_db {
        return Err(Failure::usage("--db and --dbs are both given: one of them is served, and has the accounts"));
    }
    let file = accounts_file(args.dbs.as_deref().unwrap_or(&cli.db), args.accounts.clone());
    match &args.action {
        UserAction::Add { name, role, password_file } => {
            let role = match role {
                RoleName::Read => Role::Read,
                RoleName::Write => Role::Write,
                RoleName::Admin => Role::Admin,
            };
            if file.read()?.iter().any(|(other, _)| other == name) {
                return Err(Failure::new(format!(
                    "an account '{name}' exists: ebbtide user passwd changes its password"
                )));
            }
            let password = password(name, password_file.as_deref())?;
            file.change(|accounts| accounts.add(name, role, &password))?;
            say!("added '{name}' with the role {role} to {}", file.path().display());
        }
        UserAction::Passwd { name, password_file } => {
            if !file.read()?.iter().any(|(other, _)| other == name) {
                return Err(Failure::new(format!("no account '{name}' in {}", file.path().display())));
            }
            let password = password(name, password_file.as_deref())?;
            file.change(|accounts| accounts.set_password(name, &password))?;
            say!("changed the password of '{name}'");
        }
        UserAction::Token { name } => {
            say!("{}", file.change(|accounts| accounts.add_token(name))?);
        }
        UserAction::Revoke { name } => {
            let revoked = file.change(|accounts| accounts.remove_tokens(name))?;
            say!("revoked {} of '{name}'", human::counted(revoked as u64, "token"));
        }
        UserAction::Remove { name } => {
            file.change(|accounts| accounts.remove(name))?;
            say!("removed '{name}'");
        }
        UserAction::List => {
            if !file.path().exists() {
                return Err(Failure::new(format!("there are no accounts: {} does not exist", file.path().display())));
            }
            for (name, role) in file.read()?.iter() {
                say!("{:<5}  {name}", role.name());
            }
        }
    }
    Ok(())
}

/// Asks for a password, or reads it.
fn password(name: &str, file: Option<&Path>) -> Result<String, Failure> {
    let Some(file) = file else {
        let no_terminal = |e| Failure::new(format!("no terminal to ask for the password: {e}; use --password-file"));
        let password = rpassword::prompt_password(format!("Password of '{name}': ")).map_err(no_terminal)?;
        if rpassword::prompt_password("Repeat the password: ").map_err(no_terminal)? != password {
            return Err(Failure::new("the two passwords differ"));
        }
        return Ok(password);
    };
    let mut line = String::new();
    let input: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(files::open(file)?),
    };
    let read = BufReader::new(input.take(PASSWORD_BYTES_MAX)).read_line(&mut line);
    read.map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
    if line.len() as u64 == PASSWORD_BYTES_MAX && !line.ends_with('\n') {
        let what = format!("the first line of {} is longer than a password may be", file.display());
        return Err(Failure::new(what));
    }
    // Some editors write a byte order mark.
    Ok(line.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']).to_owned())
}
