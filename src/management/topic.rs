//! Topic keys: words between dots; in a pattern `*` is one word and `#` any number of them.

/// Matches like `rabbit_db_topic_exchange:match`.
pub(super) fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (pattern, key) = (words(pattern), words(key));
    let (mut p, mut k) = (0, 0);
    // Behind the last `#`, and how many words it has taken so far: only the last one need ever take more.
    let mut last: Option<(usize, usize)> = None;
    while k < key.len() {
        match pattern.get(p) {
            Some(&b"#") => {
                p += 1;
                last = Some((p, k));
            }
            Some(&word) if word == b"*" || Some(&word) == key.get(k) => {
                p += 1;
                k += 1;
            }
            _ => {
                let Some((behind, taken)) = last else {
                    return false;
                };
                last = Some((behind, taken + 1));
                (p, k) = (behind, taken + 1);
            }
        }
    }
    pattern.iter().skip(p).all(|word| *word == b"#")
}

/// An empty key has no words; `a.` has two.
fn words(key: &[u8]) -> Vec<&[u8]> {
    if key.is_empty() {
        return Vec::new();
    }
    key.split(|byte| *byte == b'.').collect()
}
