//! What the scripts of `tests/lab` promise one another.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use super::repository;

/// `free_ports` by a script that draws the same random numbers as the others; `claims` is the folder for temporary files.
fn free_ports(count: usize, claims: &Path) -> Vec<u16> {
    let script = format!(". tests/lab/lib.sh; RANDOM=1; free_ports {count}");
    let said = Command::new("bash")
        .args(["-euc", &script])
        .current_dir(repository("."))
        .env("TMPDIR", claims)
        .output()
        .expect("bash runs");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let ports = String::from_utf8(said.stdout).expect("numbers");
    ports
        .split_whitespace()
        .map(|port| port.parse().expect("a port"))
        .collect()
}

#[test]
fn scripts_that_start_nodes_at_the_same_moment_are_given_different_ports() {
    let claims = std::env::temp_dir().join(format!("dlx-proxy-{}-claims", std::process::id()));
    std::fs::create_dir(&claims).expect("a folder");
    let given: Vec<u16> = (0..4).flat_map(|_| free_ports(5, &claims)).collect();
    std::fs::remove_dir_all(&claims).expect("the folder");
    let different: HashSet<&u16> = given.iter().collect();
    assert_eq!((given.len(), different.len()), (20, 20), "{given:?}");
}
