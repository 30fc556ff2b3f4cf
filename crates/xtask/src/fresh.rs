//! `./x fresh`: runs the demo and the quick tests in a bare root made with debootstrap, and measures minutes and megabytes of each step.
//! Other words run other things in that root. `./x fresh test` runs all tests, `./x fresh wheel` the Python wheel as its README says.
//! `./x fresh interop` runs the part interop, `./x fresh walk` a stranger's first hour.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{At, Failure, Result};
use crate::install::is_root;
use crate::process::{
    Ending, Running, answer, check_interrupted, command, run, succeeded, text_of,
};
use crate::python;
use crate::runners::list_doctests;
use crate::steps::{LOGS, all_tests};
use crate::summary;
use crate::tree::{is_changed, prepare, seconds_since};

mod walk;

/// The file with the list of the tests that ran in the root.
const THERE: &str = "target/fresh/tests.txt";

/// The longest time for a walk through all files of the root on a busy machine.
const LONG_QUESTION: Duration = Duration::from_secs(600);

/// The packages that the document of the Python package asks for before `pip install`.
const FOR_THE_WHEEL: &[&str] = &["python3-venv", "libibverbs1", "ibverbs-providers"];

/// What is tried in the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Quick,
    All,
    Wheel,
    Interop,
    Walk,
}

impl Tried {
    fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::All => "test",
            Self::Wheel => "wheel",
            Self::Interop => "interop",
            Self::Walk => "walk",
        }
    }
}

// ---- the outer half: owns the directory ----

/// The root, which is removed however this process ends. Mounts and processes live in namespaces of the inner half, so they are gone by
/// then, whatever has happened.
struct Root {
    path: PathBuf,
}

impl Root {
    fn make() -> Result<Self> {
        let parent = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
        let template =
            PathBuf::from(parent.unwrap_or_else(|| "/tmp".into())).join("wv-fresh.XXXXXX");
        let made = text_of(command("mktemp", ["-d"]).arg(template))?;
        let root = Self {
            path: PathBuf::from(made.trim_end()),
        };
        // The folder gets the mode of a machine's root. A test starts a program for a user without rights, which could not even load libc
        // below 0700.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&root.path, open).at(&root.path)?;
        Ok(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let start = Instant::now();
        // Processes of the inner half may still be ending, and may write until they have ended.
        while self.path.exists() {
            let mut remove = command("rm", ["-rf", "--one-file-system"]);
            let removed = remove.arg(&self.path).stderr(Stdio::null()).status();
            if removed.is_ok_and(|status| status.success()) {
                return;
            }
            if start.elapsed() > Duration::from_secs(30) {
                eprintln!("x: cannot remove {}", self.path.display());
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Returns what `words` ask for: `test`, `wheel`, `interop`, `walk` or nothing, then a suite of Debian or Ubuntu or nothing.
fn wanted<'a>(words: &[&'a str]) -> Option<(Tried, &'a str)> {
    let (tried, rest) = match words {
        ["test", rest @ ..] => (Tried::All, rest),
        ["wheel", rest @ ..] => (Tried::Wheel, rest),
        ["interop", rest @ ..] => (Tried::Interop, rest),
        ["walk", rest @ ..] => (Tried::Walk, rest),
        rest => (Tried::Quick, rest),
    };
    let is_name = |suite: &str| suite.bytes().all(|byte| byte.is_ascii_lowercase());
    match rest {
        [] | [""] => Some((tried, "bookworm")),
        [suite] if is_name(suite) => Some((tried, suite)),
        _ => None,
    }
}

/// Runs `./x fresh`. Returns None if the words are no task of it.
pub(crate) fn fresh(words: &[&str]) -> Option<Result> {
    let (tried, suite) = wanted(words)?;
    Some(tried_in_a_root(tried, suite))
}

fn tried_in_a_root(tried: Tried, suite: &str) -> Result {
    if !is_root()? {
        return Err(Failure::new(3, "fresh needs root (debootstrap, chroot)"));
    }
    prepare("fresh")?;
    if tried == Tried::Wheel {
        python::wheel()?;
    } else if is_changed()? {
        println!("x: fresh tries the last commit; uncommitted changes are not in it");
    }
    let root = Root::make()?;
    fs::create_dir_all("target/fresh").at("target/fresh")?;
    if Path::new(THERE).exists() {
        fs::remove_file(THERE).at(THERE)?;
    }
    let this = std::env::current_exe().at("/proc/self/exe")?;
    let mut inner = command("unshare", ["--mount", "--pid", "--fork", "--kill-child"]);
    inner.args(["--propagation", "private"]);
    // The first process of a namespace has to reap the processes that others leave, which a waiting shell does.
    inner.args(["sh", "-c", "\"$@\"; exit $?", "sh"]).arg(this);
    inner
        .arg("fresh-inside")
        .arg(&root.path)
        .args([suite, tried.word()]);
    // unshare ignores SIGTERM. If it is killed, the namespaces end with all their processes.
    let status = Running::start(&mut inner, Ending::Killed)?.wait(None)?;
    drop(root);
    let well = status.map_or(Err(Failure::silent(1)), succeeded);
    if tried == Tried::All && !compare_lists()? {
        return Err(Failure::silent(1));
    }
    well
}

/// Compares the list of tests of the fresh root with that of this machine. The list of this machine is what `./x test` has left here, if it
/// ran on the same commit. Otherwise it is a list of the tests that exist.
fn compare_lists() -> Result<bool> {
    let there = Path::new(THERE);
    if fs::metadata(there).map_or(0, |data| data.len()) == 0 {
        println!("x: the fresh root has left no list of tests");
        return Ok(false);
    }
    let head = text_of(&mut command("git", ["rev-parse", "HEAD"]))?;
    let of_here = fs::read_to_string(Path::new(LOGS).join("tests.commit")).unwrap_or_default();
    let mut here = Path::new(LOGS).join("tests.txt");
    if of_here.trim_end() != format!("test {}", head.trim_end()) {
        if is_changed()? {
            println!("x: this machine's list is of its files, which differ from the last commit");
        }
        here = PathBuf::from("target/fresh/exist.txt");
        prepare("demo")?;
        let (tree, is_whole) = all_tests()?;
        is_whole?;
        let names = summary::list_of_names(&tree, &list_doctests()?, python::existing()?);
        fs::write(&here, names).at(&here)?;
    }
    let (told, same) = summary::compare(&here, there)?;
    println!("{told}");
    Ok(same)
}

// ---- the inner half: in namespaces of its own ----

/// The fresh root, and the times measured in it.
struct Inside {
    root: PathBuf,
    suite: String,
    /// The variables of commands in the root: a plain environment, and this machine's settings for TLS, proxies and package managers.
    environment: Vec<(OsString, OsString)>,
    report: Vec<String>,
}

/// Runs the inner half, with the arguments that [`fresh`] gives.
pub(crate) fn fresh_inside(root: &str, suite: &str, tried: &str) -> Result {
    let mut inside = Inside {
        root: root.into(),
        suite: suite.to_owned(),
        environment: environment_inside(),
        report: Vec::new(),
    };
    inside.measured(&format!("debootstrap {suite}"), Inside::make_root)?;
    if tried == Tried::Wheel.word() {
        return inside.try_wheel();
    }
    inside.measured("clone", Inside::lend_project)?;
    if tried == Tried::All.word() {
        return inside.try_all_tests();
    }
    if tried == Tried::Walk.word() {
        return inside.try_walk();
    }
    if tried == Tried::Interop.word() {
        let part = ["test", "interop"];
        inside.measured("./x test interop", |inside| inside.run_x(&part))?;
        inside.print_report();
        return Ok(());
    }
    inside.try_twice("./x demo", &["demo"])?;
    inside.try_twice("./x test quick", &["test", "quick"])?;
    inside.print_report();
    let megabytes = inside.size_mb()?;
    println!("second runs installed nothing; {megabytes} MB on disk in all");
    Ok(())
}

impl Inside {
    /// Runs a step, and adds a line with its minutes and MB to the table for the end.
    fn measured(&mut self, name: &str, does: impl FnOnce(&Self) -> Result) -> Result {
        let (size, received, start) = (self.size_mb()?, received_mb()?, Instant::now());
        let result = does(self);
        check_interrupted()?;
        if let Err(failure) = result {
            failure.say();
            return Err(Failure::new(1, format!("in the fresh root: {name} failed")));
        }
        let seconds = seconds_since(start);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let (size, received) = (self.size_mb()? - size, received_mb()? - received);
        self.report.push(format!(
            "{name:28} {minutes:3} min {seconds:02} s {size:6} MB on disk {received:6} MB received by the machine"
        ));
        Ok(())
    }

    fn print_report(&self) {
        println!("\n{}", self.report.join("\n"));
    }

    /// Runs a command twice. The second run must find nothing to install.
    fn try_twice(&mut self, name: &str, arguments: &[&str]) -> Result {
        self.measured(name, |inside| inside.run_x(arguments))?;
        let before = self.installed_state()?;
        self.measured(&format!("{name} again"), |inside| inside.run_x(arguments))?;
        if self.installed_state()? != before {
            return Err(Failure::new(
                1,
                format!("the second {name} installed something"),
            ));
        }
        Ok(())
    }

    /// Runs all tests, and copies their list however the tests end.
    fn try_all_tests(&mut self) -> Result {
        let mut ended = Ok(());
        self.measured("./x test", |inside| {
            let tested = inside.run_x(&["test"]);
            let list = inside.root.join("warpverbs").join(LOGS).join("tests.txt");
            let listed = fs::copy(&list, THERE).at(&list);
            ended = tested.and(listed.map(|_bytes| ()));
            Ok(())
        })?;
        self.print_report();
        ended.map_err(|failure| {
            failure.say();
            Failure::new(1, "in the fresh root: ./x test failed")
        })
    }

    fn run_x(&self, arguments: &[&str]) -> Result {
        run(self.inside().args(["sh", "/warpverbs/x"]).args(arguments))
    }

    /// Tries the Python package as its document says: packages of the system, `pip install`, and the first example.
    fn try_wheel(&mut self) -> Result {
        self.measured(&FOR_THE_WHEEL.join(" "), |inside| {
            inside.install(FOR_THE_WHEEL)
        })?;
        self.measured("pip install", |inside| {
            let wheel = inside.take_in(&python::package()?)?;
            run(inside.inside().args(["python3", "-m", "venv", "/venv"]))?;
            let pip = ["/venv/bin/python", "-m", "pip", "install", "-q"];
            run(inside.inside().args(pip).arg(wheel).arg("torch"))
        })?;
        self.measured("two_ranks.py", |inside| {
            let example = inside.take_in(Path::new("python/examples/two_ranks.py"))?;
            let python = "/venv/bin/python";
            let mut program = inside.inside();
            program.args([python, "-m", "warpverbs.sim", "--", python]);
            let said = text_of(program.arg(example))?;
            let mut lines: Vec<_> = said.lines().collect();
            lines.sort_unstable();
            match lines[..] {
                ["rank 0: 1.75", "rank 1: 1.75"] => Ok(()),
                _ => Err(Failure::new(1, format!("two_ranks.py said {said:?}"))),
            }
        })?;
        self.print_report();
        Ok(())
    }

    /// Installs packages of the system in the root.
    fn install(&self, packages: &[&str]) -> Result {
        run(self.inside().args(["apt-get", "update", "-qq"]))?;
        let mut apt = self.inside();
        apt.args(["apt-get", "install", "-yqq", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null());
        run(&mut apt)
    }

    /// Copies a file of this machine into the root. Returns its path in the root.
    fn take_in(&self, file: &Path) -> Result<PathBuf> {
        let name = file.file_name().unwrap_or_default();
        fs::copy(file, self.root.join(name)).at(file)?;
        Ok(Path::new("/").join(name))
    }

    /// Returns the begin of a command that runs in the root.
    fn inside(&self) -> Command {
        let mut inside = command("chroot", [&self.root]);
        inside.args(["env", "-i"]);
        for (name, value) in &self.environment {
            let mut setting = name.clone();
            setting.push("=");
            setting.push(value);
            inside.arg(setting);
        }
        inside
    }

    fn make_root(&self) -> Result {
        let root = &self.root;
        let mut debootstrap = command(
            "debootstrap",
            ["--variant=minbase", "--include=ca-certificates"],
        );
        debootstrap.arg(format!("--components={}", components_of(&self.suite)));
        debootstrap
            .args([self.suite.as_ref(), root.as_os_str()])
            .arg(mirror(&self.suite)?)
            .args(script_of(&self.suite));
        run(debootstrap.stdout(Stdio::null())).inspect_err(|_failed| {
            let log =
                fs::read_to_string(root.join("debootstrap/debootstrap.log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(5)..].join("\n"));
        })?;
        self.lend_settings()?;
        // `unshare --mount-proc` changes how mounts of `/` are passed on, so the root must be one.
        run(command("mount", ["--bind"]).arg(root).arg(root))?;
        run(command("mount", ["-t", "proc", "proc"]).arg(root.join("proc")))?;
        // Programs of others look for interfaces, cores and devices in /sys, which every machine and container has.
        run(command("mount", ["--rbind", "/sys"]).arg(root.join("sys")))?;
        run(command("mount", ["--rbind", "/dev"]).arg(root.join("dev")))
    }

    fn lend_project(&self) -> Result {
        let root = &self.root;
        let lent_rust = root.join("opt/rust");
        fs::create_dir_all(&lent_rust).at(&lent_rust)?;
        let rust = text_of(&mut command("rustc", ["--print", "sysroot"]))?;
        run(command("mount", ["--bind", "-o", "ro", rust.trim_end()]).arg(lent_rust))?;
        run(command("git", ["clone", "-q", "."]).arg(root.join("warpverbs")))
    }

    /// Copies settings of the machine into the root, not those of the project: certificates, name service, package managers.
    fn lend_settings(&self) -> Result {
        for file in [
            "etc/ssl/certs/ca-certificates.crt",
            "etc/resolv.conf",
            "etc/hosts",
            "etc/pip.conf",
        ] {
            let here = Path::new("/").join(file);
            if here.is_file() {
                fs::copy(&here, self.root.join(file)).at(&here)?;
            }
        }
        let settings = text_of(&mut command("apt-config", ["dump"]))?;
        let settings = settings
            .lines()
            .filter(|line| line.starts_with("Acquire::"));
        let settings: Vec<_> = settings.map(|line| format!("{line}\n")).collect();
        let file = self.root.join("etc/apt/apt.conf.d/00machine");
        fs::write(&file, settings.concat()).at(&file)?;
        let cargo = self.root.join("root/.cargo");
        fs::create_dir_all(&cargo).at(&cargo)?;
        let Some(home) = cargo_home().filter(|home| home.is_dir()) else {
            return Ok(());
        };
        for entry in fs::read_dir(&home).at(&home)? {
            let path = entry.at(&home)?.path();
            let name = path.file_name().unwrap_or_default();
            if path.is_file() && name.to_string_lossy().starts_with("config") {
                fs::copy(&path, cargo.join(name)).at(&path)?;
            }
        }
        Ok(())
    }

    /// Returns what an installation could have changed: packages, wheels, downloaded crates.
    fn installed_state(&self) -> Result<Vec<String>> {
        let packages = text_of(command("chroot", [&self.root]).args(["dpkg-query", "-W"]))?;
        let folders = ["warpverbs/.tools", "root/.cargo"].map(|folder| self.root.join(folder));
        let mut find = Command::new("find");
        find.args(folders)
            .args(["-type", "f"])
            .stderr(Stdio::null());
        let files = answer(&mut find, Some(LONG_QUESTION))?;
        let mut state: Vec<_> = packages
            .lines()
            .chain(files.text.lines())
            .map(str::to_owned)
            .collect();
        state.sort();
        Ok(state)
    }

    fn size_mb(&self) -> Result<i64> {
        let mut exclude = OsString::from("--exclude=");
        exclude.push(self.root.join("opt/rust"));
        let mut du = command("du", ["-sxm"]);
        du.arg(exclude).arg(&self.root).stderr(Stdio::null());
        let said = answer(&mut du, Some(LONG_QUESTION))?;
        let number = said
            .text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        number.ok_or_else(|| Failure::new(1, "du does not say how large the fresh root is"))
    }
}

/// Returns how many bytes this machine has received from other machines, in MB.
fn received_mb() -> Result<i64> {
    let path = "/proc/net/dev";
    Ok(received_bytes(&fs::read_to_string(path).at(path)?) / 1_000_000)
}

fn received_bytes(devices: &str) -> i64 {
    let rows = devices.lines().filter_map(|line| line.split_once(':'));
    let others = rows.filter(|(name, _)| name.trim() != "lo");
    let received = others.filter_map(|(_, row)| row.split_whitespace().next()?.parse::<i64>().ok());
    received.sum()
}

/// Returns the script of debootstrap for a suite of Ubuntu that is younger than debootstrap: all suites since gutsy have the same script.
/// Returns None for a suite that debootstrap knows.
fn script_of(suite: &str) -> Option<PathBuf> {
    let scripts = Path::new("/usr/share/debootstrap/scripts");
    (is_of_ubuntu(suite) && !scripts.join(suite).exists()).then(|| scripts.join("gutsy"))
}

/// Returns the components of a suite of Debian or Ubuntu.
fn components_of(suite: &str) -> &'static str {
    if is_of_ubuntu(suite) {
        "main,universe"
    } else {
        "main"
    }
}

fn is_of_ubuntu(suite: &str) -> bool {
    ["noble", "plucky", "questing"].contains(&suite)
}

/// The address of Ubuntu's packages for a machine that is not Ubuntu. Debian has no package of Ubuntu's keys, so debootstrap warns that it
/// checks no signature.
const UBUNTU: &str = "http://archive.ubuntu.com/ubuntu";

/// Returns where debootstrap finds the packages of a suite: WV_MIRROR, or where apt finds those of this machine's release.
fn mirror(suite: &str) -> Result<OsString> {
    if let Some(mirror) = std::env::var_os("WV_MIRROR").filter(|mirror| !mirror.is_empty()) {
        return Ok(mirror);
    }
    let release = fs::read_to_string("/etc/os-release").at("/etc/os-release")?;
    let format = [
        "indextargets",
        "--format",
        "$(RELEASE) $(REPO_URI)",
        "Created-By: Packages",
    ];
    if is_of_ubuntu(suite) && !codename_in(&release).is_some_and(is_of_ubuntu) {
        return Ok(UBUNTU.into());
    }
    let targets = text_of(&mut command("apt-get", format))?;
    let mirror = codename_in(&release).and_then(|codename| mirror_in(&targets, codename));
    mirror.map(OsString::from).ok_or_else(|| {
        Failure::new(
            3,
            "no mirror found in this machine's apt sources: set WV_MIRROR",
        )
    })
}

fn codename_in(release: &str) -> Option<&str> {
    let mut lines = release.lines();
    let codename = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(codename.trim_matches('"'))
}

fn mirror_in<'a>(targets: &'a str, codename: &str) -> Option<&'a str> {
    let mut lines = targets.lines();
    lines.find_map(|line| line.strip_prefix(codename)?.strip_prefix(' '))
}

fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty());
    let below_home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cargo"));
    named.map(PathBuf::from).or_else(below_home)
}

fn environment_inside() -> Vec<(OsString, OsString)> {
    let path = "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let plain = [("HOME", "/root"), ("LANG", "C.UTF-8"), ("PATH", path)];
    let plain = plain.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let lent = std::env::vars_os().filter(|(name, _)| is_lent(&name.to_string_lossy()));
    plain.into_iter().chain(lent).collect()
}

/// Returns whether a variable is a setting of the machine that the root needs as well.
fn is_lent(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    let begins = ["PIP_", "CARGO_HTTP", "CARGO_NET", "CARGO_REGISTR"];
    let holds = ["SSL_CERT", "CA_BUNDLE"];
    name.ends_with("_PROXY")
        || begins.iter().any(|start| name.starts_with(start))
        || holds.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_one_word_in_small_letters() {
        fn of(words: &str) -> Option<(&str, &str)> {
            let words: Vec<&str> = words.split_whitespace().collect();
            wanted(&words).map(|(tried, suite)| (tried.word(), suite))
        }
        assert_eq!(of(""), Some(("quick", "bookworm")));
        assert_eq!(of("noble"), Some(("quick", "noble")));
        assert_eq!(of("test"), Some(("test", "bookworm")));
        assert_eq!(of("test noble"), Some(("test", "noble")));
        assert_eq!(of("wheel"), Some(("wheel", "bookworm")));
        assert_eq!(of("wheel noble"), Some(("wheel", "noble")));
        assert_eq!(of("interop"), Some(("interop", "bookworm")));
        assert_eq!(of("interop noble"), Some(("interop", "noble")));
        assert_eq!(of("walk"), Some(("walk", "bookworm")));
        for wrong in [
            "--help",
            "test --help",
            "help me",
            "Noble",
            "test noble more",
            "../root",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_root_is_removed_with_what_is_in_it() {
        let root = Root::make().unwrap();
        let path = root.path.clone();
        fs::write(path.join("file"), "").unwrap();
        drop(root);
        assert!(!path.exists());
    }

    #[test]
    fn settings_of_the_machine_are_lent_and_others_are_not() {
        for name in [
            "https_proxy",
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "PIP_INDEX_URL",
            "CARGO_NET_OFFLINE",
        ] {
            assert!(is_lent(name), "{name}");
        }
        for name in [
            "PATH",
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "WV_RUNNER",
            "XPIP_",
        ] {
            assert!(!is_lent(name), "{name}");
        }
    }

    #[test]
    fn bytes_of_all_devices_but_the_loopback_count() {
        let devices =
            "Inter-| Receive\n face |bytes packets\n    lo: 500 1\n  eth0: 70 1\neth1:5 2\n";
        assert_eq!(received_bytes(devices), 75);
    }

    #[test]
    fn a_suite_of_ubuntu_has_its_own_mirror_components_and_script() {
        assert_eq!(
            (components_of("noble"), components_of("bookworm")),
            ("main,universe", "main")
        );
        assert!(is_of_ubuntu("noble") && !is_of_ubuntu("trixie"));
        assert_eq!(script_of("bookworm"), None);
        let script = script_of("noble");
        assert!(script.is_none_or(|script| script.ends_with("gutsy")));
    }

    #[test]
    fn the_mirror_is_that_of_this_release() {
        let release = "ID=debian\nVERSION_CODENAME=\"bookworm\"\n";
        assert_eq!(codename_in(release), Some("bookworm"));
        let targets = "bookworm-updates http://a\nbookworm http://b\nbookworm http://c\n";
        assert_eq!(mirror_in(targets, "bookworm"), Some("http://b"));
        assert_eq!(mirror_in(targets, "noble"), None);
    }
}
