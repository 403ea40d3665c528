//! Files and edits of them, made from a fuzzer's bytes.

/// Makes a basis and an edited copy of it from `data`: the first half grows into the basis, the
/// second half is a script of edits. At most about 2 MiB each.
pub fn edited_files(data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (content, script) = data.split_at(data.len() / 2);
    let mut basis = Vec::new();
    for &byte in content.iter().take(4096) {
        match byte % 8 {
            0 => basis.resize(basis.len() + usize::from(byte) * 8, 0),
            1 => basis.resize(basis.len() + usize::from(byte) * 8, byte),
            _ => basis.extend(noise(u64::from(byte) << 32 | basis.len() as u64, usize::from(byte) * 4)),
        }
    }
    let mut new = basis.clone();
    for edit in script.chunks_exact(6).take(256) {
        let place = |high: u8, low: u8, file: &Vec<u8>| {
            (usize::from(high) << 8 | usize::from(low)) * 17 % (file.len() + 1)
        };
        let at = place(edit[1], edit[2], &new);
        let len = usize::from(edit[3]) * (usize::from(edit[0]) / 16 + 1);
        let end = (at + len).min(new.len());
        match edit[0] % 8 {
            0 => drop(new.drain(at..end)),
            1 => drop(new.splice(at..at, noise(u64::from(edit[4]), len))),
            2 => new[at..end].fill(edit[4]),
            3 => new[at..end].copy_from_slice(&noise(u64::from(edit[4]), end - at)),
            4 => new.extend(noise(u64::from(edit[4]), len)),
            5 => new.truncate(at),
            turn => {
                let moved: Vec<u8> = new[at..end].to_vec();
                if turn == 6 {
                    new.drain(at..end);
                }
                let to = place(edit[4], edit[5], &new);
                new.splice(to..to, moved);
            }
        }
    }
    (basis, new)
}

/// Returns random-looking bytes, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32).to_le_bytes()[0]
    };
    (0..len).map(step).collect()
}
