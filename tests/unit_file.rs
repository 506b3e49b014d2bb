//! The unit files, judged by the real systemd-analyze: nothing to complain about, and walls as high as promised.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Highest exposure accepted, on systemd's scale from 0 to 10; with a GPU's device nodes or without.
const EXPOSURE_MAX: f64 = 0.6;

fn systemd() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

fn analyze(arguments: &[&str], unit: &Path) -> Output {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(unit).output().expect("systemd-analyze runs")
}

fn present() -> bool {
    let present = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !present {
        println!("skipped: systemd-analyze is not installed (Debian: systemd)");
    }
    present
}

/// The unit as installed, but for its program, which must exist where it is verified.
fn unit(folder: &Path, gpu: bool, edit: impl Fn(&str) -> String) -> PathBuf {
    let text = fs::read_to_string(systemd().join("steadfastd.service")).expect("the unit");
    let program = env!("CARGO_BIN_EXE_steadfastd");
    assert!(text.contains("\nExecStart=/usr/bin/steadfastd "), "the program's place");
    let path = folder.join("steadfastd.service");
    fs::write(&path, edit(&text.replace("/usr/bin/steadfastd", program))).expect("written");
    if gpu {
        let drop_ins = folder.join("steadfastd.service.d");
        fs::create_dir(&drop_ins).expect("a folder");
        fs::copy(systemd().join("steadfastd.service.d/gpu.conf"), drop_ins.join("gpu.conf")).expect("copied");
    }
    path
}

fn verify(unit: &Path) -> String {
    let output = analyze(&["verify", "--man=no"], unit);
    // It exits 0 on keys it does not know, so any word of it counts.
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    if output.status.success() { said } else { format!("{said} ({})", output.status) }
}

fn exposure(unit: &Path) -> f64 {
    let output = analyze(&["security", "--offline=true", "--no-pager"], unit);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("Overall exposure level")).expect("a verdict");
    let figure = line.split_once("service: ").expect("a figure").1.split(' ').next().expect("a figure");
    figure.parse().expect("a number")
}

#[test]
fn systemd_has_nothing_to_complain_about() {
    if !present() {
        return;
    }
    for gpu in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(verify(&unit(folder.path(), gpu, str::to_owned)), "", "with GPU: {gpu}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let misspelt = unit(folder.path(), false, |text| text.replace("PrivateNetwork=", "PrivateNetworks="));
    assert!(verify(&misspelt).contains("PrivateNetworks"), "a misspelt wall is noticed");
}

#[test]
fn exposure_stays_under_its_ceiling() {
    if !present() {
        return;
    }
    for gpu in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let exposure = exposure(&unit(folder.path(), gpu, str::to_owned));
        println!("exposure with GPU nodes {gpu}: {exposure}");
        assert!(exposure <= EXPOSURE_MAX, "with GPU: {gpu}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let breached = unit(folder.path(), false, |text| text.replace("SystemCallFilter=", "#"));
    assert!(exposure(&breached) > EXPOSURE_MAX, "a wall taken down is noticed");
}

#[test]
fn what_the_daemon_relies_on_is_there() {
    let text = fs::read_to_string(systemd().join("steadfastd.service")).expect("the unit");
    let has = |line: &str| text.lines().any(|present| present == line);
    for line in [
        "Type=notify",
        "Restart=always",
        "RestartPreventExitStatus=78",
        "User=steadfast",
        "PrivateNetwork=yes",
        "StartLimitIntervalSec=0",
    ] {
        assert!(has(line), "{line}");
    }
    // Would hide /proc/cpuinfo, which ONNX Runtime reads.
    assert!(!text.lines().any(|line| line.starts_with("ProcSubset")));
    // Neither exists on systemd 245.
    assert!(!text.contains("notify-reload") && !text.contains("LoadCredential"));
    let activation = fs::read_to_string(systemd().join("org.steadfast.Guard1.service")).expect("the activation");
    assert!(activation.lines().any(|line| line == "Name=org.steadfast.Guard1"));
    assert!(activation.lines().any(|line| line == "SystemdService=steadfastd.service"));
}

#[test]
fn users_and_folders_are_what_the_unit_and_the_policy_name() {
    let users = fs::read_to_string(systemd().join("sysusers.d/steadfast.conf")).expect("users");
    for line in ["u steadfast ", "g steadfast-clients ", "g steadfast-admin "] {
        assert!(users.lines().any(|present| present.starts_with(line)), "{line}");
    }
    let folders = fs::read_to_string(systemd().join("tmpfiles.d/steadfast.conf")).expect("folders");
    assert!(folders.lines().any(|line| line == "d /var/lib/steadfast/keys 0700 steadfast steadfast -"));
    if Command::new("systemd-sysusers").arg("--version").output().is_ok() {
        let root = tempfile::tempdir().expect("a root");
        fs::create_dir(root.path().join("etc")).expect("a folder");
        let into = format!("--root={}", root.path().display());
        for (tool, file) in
            [("systemd-sysusers", "sysusers.d/steadfast.conf"), ("systemd-tmpfiles", "tmpfiles.d/steadfast.conf")]
        {
            let mut command = Command::new(tool);
            command.arg(&into);
            if tool == "systemd-tmpfiles" {
                command.arg("--create");
            }
            let output = command.arg(systemd().join(file)).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // Only root may give the folders to the guard's user.
            let foreign = said.contains("Operation not permitted");
            assert!(output.status.success() || foreign, "{tool}: {said}");
        }
        let group = fs::read_to_string(root.path().join("etc/group")).expect("groups");
        assert!(group.contains("steadfast-admin:") && group.contains("steadfast-clients:"), "{group}");
    }
}
