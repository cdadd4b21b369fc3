"""Plants bugs into a copy of the sources, which is made of the last commit.

One build holds all bugs; EBBTIDE_PLANT names the one that acts, 0 none. A bug whose place is not found once in the sources is named:
mend its text in the list that plants it.
"""
import io
import pathlib
import subprocess
import sys
import tarfile

PLANTS = []

SWITCH = '''
/// Whether this bug acts.
pub(crate) fn plant(n: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("EBBTIDE_PLANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0)) == n
}
'''
NOW = "\npub(crate) static NOW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);\n"


def plant(number, what, file, old, new):
    PLANTS.append((number, what, file, old, new))


def plant_all(crates, more={}):
    """Writes the copy into the folder that the command line names, with the switch in these crates and more in some of them."""
    copy = pathlib.Path(sys.argv[1])
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], check=True, capture_output=True, text=True).stdout.strip()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=top, check=True, capture_output=True).stdout
    tarfile.open(fileobj=io.BytesIO(archive)).extractall(copy)
    lost = 0
    for number, what, file, old, new in PLANTS:
        text = (copy / file).read_text()
        if text.count(old) != 1:
            print(f"{number} ({what}): found {text.count(old)} times in {file}")
            lost += 1
        else:
            (copy / file).write_text(text.replace(old, new))
    for crate in crates:
        with open(copy / crate / "src/lib.rs", "a") as lib:
            lib.write(SWITCH + more.get(crate, ""))
    print(f"{len({plant[0] for plant in PLANTS})} bugs planted in {copy}, {lost} of their places not found")
