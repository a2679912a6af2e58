//! What `tests/lab/with-brokers.sh` says of the nodes that it started.

/// A variable that says something of each version, as `3.10.8=…,4.3.6=…`.
pub(crate) fn by_version(variable: &str, separator: char) -> Vec<(String, String)> {
    let text = std::env::var(variable).unwrap_or_default();
    let pairs = text.split(separator);
    let pairs = pairs.filter_map(|item| item.trim().split_once('='));
    pairs
        .map(|(version, said)| (version.to_owned(), said.to_owned()))
        .collect()
}
