//! Servers of object storage that end with a test. `EBBTIDE_LAKE_PYTHON`, or else `EBBTIDE_PYTHON`, names the interpreter that has the
//! packages, `python3` is the default; `EBBTIDE_AZURITE` is the program `azurite-blob`. What is missing is told, and its test does nothing.

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

pub(crate) fn python() -> String {
    let named = ["EBBTIDE_LAKE_PYTHON", "EBBTIDE_PYTHON"].into_iter().find_map(|name| std::env::var(name).ok());
    named.unwrap_or_else(|| "python3".to_owned())
}

/// The interpreter, if it has these packages.
pub(crate) fn python_with(packages: &str) -> Option<String> {
    let python = python();
    match Command::new(&python).args(["-c", &format!("import {packages}")]).output() {
        Ok(output) if output.status.success() => return Some(python),
        Ok(_) => println!("skipped: {python} lacks one of the packages {packages}"),
        Err(error) => println!("skipped: cannot run {python}: {error}"),
    }
    None
}

/// The id of the key of an S3 server, and the key.
pub(crate) const KEY_ID: &str = "AKIAOFTHETEST";
const SECRET: &str = "secret-key";

/// The key of an emulator, from its documentation.
const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Process {
    /// Starts a server, and waits for a line with this text in it. Returns what follows the text, too.
    #[expect(clippy::disallowed_methods, reason = "a thread of the test, not of the engine")]
    fn start(command: &mut Command, text: &str) -> Option<(Process, String)> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let program = command.get_program().to_string_lossy().into_owned();
        let child = child.inspect_err(|error| println!("skipped: cannot run {program}: {error}")).ok()?;
        let mut server = Process(child);
        let mut told = BufReader::new(server.0.stdout.take().unwrap());
        loop {
            let mut line = String::new();
            assert!(told.read_line(&mut line).unwrap() > 0, "{program} did not start");
            if let Some((_, rest)) = line.split_once(text) {
                // Nobody may be left who does not read what it says.
                std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
                return Some((server, rest.trim().to_owned()));
            }
        }
    }
}

/// Runs Python on a text, which makes a bucket or container.
fn make(python: &str, script: &str, port: &str) {
    let output = Command::new(python).args(["-c", script, port]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Serves S3 on a port of its own, and tells the port.
pub(crate) const MOTO: &str = "
import threading
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('port', server.get_host_and_port()[1], flush=True)
threading.Event().wait()
";

/// The same, but from the twentieth request on all requests are refused for five seconds because there are too many.
pub(crate) const BUSY_MOTO: &str = "
import itertools, time
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
application = DomainDispatcherApplication(create_backend_app)
requests = itertools.count(1)
ends = 0
def busy(environ, start_response):
    global ends
    number = next(requests)
    if number == 20:
        ends = time.monotonic() + 5
    if time.monotonic() >= ends:
        return application(environ, start_response)
    environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    start_response('503 Slow Down' if number % 2 else '429 Too Many Requests', [('Content-Length', '0')])
    return []
server = make_server('127.0.0.1', 0, busy, threaded=True)
print('port', server.port, flush=True)
server.serve_forever()
";

/// The same by another program, which takes a port and does not choose one.
pub(crate) const MINISTACK: &str = "
import os, socket, sys
probe = socket.socket()
probe.bind(('127.0.0.1', 0))
port = str(probe.getsockname()[1])
probe.close()
print('port', port, flush=True)
os.environ['GATEWAY_PORT'] = port
os.execv(sys.executable, [sys.executable, '-m', 'ministack'])
";

const MAKE_BUCKET: &str = "
import sys, time, urllib.request
request = urllib.request.Request(f'http://127.0.0.1:{sys.argv[1]}/bucket', method='PUT')
for attempt in range(600):
    try:
        urllib.request.urlopen(request).read()
        break
    except ConnectionError:
        time.sleep(0.1)
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionError): raise
        time.sleep(0.1)
else:
    raise SystemExit('the server does not answer')
";

/// The account and its key are those that Azurite is known for.
const MAKE_CONTAINER: &str = "
import base64, email.utils, hashlib, hmac, sys, urllib.request
account = 'devstoreaccount1'
key = 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
headers = {'x-ms-date': email.utils.formatdate(usegmt=True), 'x-ms-version': '2021-12-02'}
named = ''.join(f'{name}:{value}\\n' for name, value in sorted(headers.items()))
text = f'PUT\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n{named}/{account}/{account}/bucket\\nrestype:container'
mac = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
headers['Authorization'] = f'SharedKey {account}:{base64.b64encode(mac).decode()}'
url = f'http://127.0.0.1:{sys.argv[1]}/{account}/bucket?restype=container'
urllib.request.urlopen(urllib.request.Request(url, method='PUT', headers=headers)).read()
";

/// A server with a bucket or container.
pub(crate) struct StoreServer {
    _process: Process,
    /// Where things can be kept there.
    pub(crate) url: &'static str,
    /// The variables that a program needs to use it.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// A key among them.
    pub(crate) secret: &'static str,
}

impl StoreServer {
    /// Runs a test of this program again, with the URL and the secret in the environment; returns what it prints.
    pub(crate) fn run_test(&self, name: &str) -> (String, String) {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env("EBBTIDE_LAKE_URL", self.url).env("EBBTIDE_LAKE_SECRET", self.secret);
        let output = again.envs(self.environment.iter().cloned()).output().unwrap();
        let [told, failed] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success() && told.contains("1 passed"), "{told}{failed}");
        (told, failed)
    }
}

/// The objects at a URL, with a key from the environment.
pub(crate) fn store_of(url: &str) -> Arc<dyn ObjectStore> {
    match url.starts_with("s3://") {
        true => Arc::new(AmazonS3Builder::from_env().with_url(url).build().unwrap()),
        false => Arc::new(MicrosoftAzureBuilder::from_env().with_url(url).build().unwrap()),
    }
}

/// A server that a Python program starts.
pub(crate) fn s3(python: &str, script: &str) -> StoreServer {
    let (process, port) = Process::start(Command::new(python).args(["-c", script]), "port ").unwrap();
    make(python, MAKE_BUCKET, &port);
    let address = format!("http://127.0.0.1:{port}");
    let environment = [
        ("AWS_ENDPOINT_URL", &*address),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
    ];
    let environment = environment.map(|(name, value)| (name, value.to_owned())).to_vec();
    StoreServer { _process: process, url: "s3://bucket/some/where", environment, secret: SECRET }
}

/// Azurite, if it is there.
pub(crate) fn azure() -> Option<StoreServer> {
    let azurite = std::env::var("EBBTIDE_AZURITE").unwrap_or_else(|_| "azurite-blob".to_owned());
    let python = python_with("hmac")?;
    let mut command = Command::new(azurite);
    command.args(["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]);
    let (process, port) = Process::start(&mut command, "listens on http://127.0.0.1:")?;
    make(&python, MAKE_CONTAINER, &port);
    let address = format!("http://127.0.0.1:{port}");
    let environment = vec![("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()), ("AZURITE_BLOB_STORAGE_URL", address)];
    Some(StoreServer { _process: process, url: "az://bucket/some/where", environment, secret: AZURITE_KEY })
}
