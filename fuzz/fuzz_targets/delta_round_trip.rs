//! Whole deltas of edited files: signature, search, tokens and apply rebuild the new file and its
//! root. So do further rounds, and the copies carried out in place. Weak sums on demand find the
//! same as weak sums from the start.
#![no_main]

mod delta_edits;

use dsync_delta::{
    Applier, BasisCopy, BlockLen, InPlaceOrder, InPlaceStep, IndexedSignature, Key, Layout, RefineRequest,
    Rolling, RootBuilder, SegmentOutcome, Segments, Step, SumsFormat, Token, TokenEncoder, TokenSink,
    file_root, plan_segment, refine_parallel, search_segment, signature_parallel,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[log2, format], rest)) = data.split_first_chunk::<2>() else { return };
    let (basis, new) = delta_edits::edited_files(rest);
    let key = Key::derive(&[b"fuzz"]);
    let Ok(block_len) = BlockLen::new(1 << (10 + log2 % 8)) else { return };
    let layout = Layout::new(basis.len() as u64, block_len);
    let format = if format % 2 == 0 { SumsFormat::StrongAndWeak } else { SumsFormat::StrongOnly };
    let signature = signature_parallel(&key, layout, format, &basis).unwrap();
    let index = IndexedSignature::new(signature, &key);
    let segments = Segments::new(new.len() as u64, 20).unwrap();
    let mut one_round = Rebuilt::new(&key, &segments, layout);
    let mut plans = Vec::new();
    for segment in 0..segments.count() {
        let mut sink = Encoded::default();
        let outcome = search_segment(&index, &new, &segments, segment, &Rolling::new(), &mut sink).unwrap();
        one_round.add(segment, outcome, sink, &basis);
        plans.push(plan_segment(&index, &new, &segments, segment, &Rolling::new()).unwrap());
    }
    one_round.check(&key, &basis, &new);
    if let Some(request) = RefineRequest::weak_sums(layout, &plans).filter(|_| !index.has_weak()) {
        index.add_weak(refine_parallel(&key, &request, &basis).unwrap()).unwrap();
        let both = signature_parallel(&key, layout, SumsFormat::StrongAndWeak, &basis).unwrap();
        let both = IndexedSignature::new(both, &key);
        for (segment, plan) in (0..).zip(&mut plans).filter(|(_, plan)| plan.wants_weak_sums()) {
            *plan = plan.search_again(&index, &new, &Rolling::new()).unwrap();
            let at_once = plan_segment(&both, &new, &segments, segment, &Rolling::new()).unwrap();
            assert_eq!(plan.outcome().literal_bytes, at_once.outcome().literal_bytes);
            assert_eq!(plan.outcome().value, at_once.outcome().value);
        }
    }
    let Some(request) = RefineRequest::collect(layout, BlockLen::MIN, &plans) else { return };
    let fine = refine_parallel(&key, &request, &basis).unwrap();
    let fine = IndexedSignature::new(fine, &key);
    let mut two_rounds = Rebuilt::new(&key, &segments, request.layout());
    for (segment, plan) in (0..).zip(&plans) {
        let mut sink = Encoded::default();
        let outcome = plan.emit_refined(&fine, &new, &Rolling::new(), &mut sink).unwrap();
        assert!(outcome.literal_bytes <= plan.outcome().literal_bytes);
        two_rounds.add(segment, outcome, sink, &basis);
    }
    two_rounds.check(&key, &basis, &new);
});

struct Rebuilt {
    segments: Segments,
    layout: Layout,
    root: RootBuilder,
    file: Vec<u8>,
    copies: Vec<BasisCopy>,
    literals: Vec<(u64, Vec<u8>)>,
}

impl Rebuilt {
    fn new(key: &Key, segments: &Segments, layout: Layout) -> Self {
        Self {
            segments: *segments,
            layout,
            root: RootBuilder::new(key, segments),
            file: vec![0xee; usize::try_from(segments.file_len()).unwrap()],
            copies: Vec::new(),
            literals: Vec::new(),
        }
    }

    fn add(&mut self, segment: u64, outcome: SegmentOutcome, mut sink: Encoded, basis: &[u8]) {
        self.root.set(segment, outcome.value).unwrap();
        let mut applier = Applier::new(Some(self.layout), &self.segments, segment, sink.lead).unwrap();
        let (file, copies, literals) = (&mut self.file, &mut self.copies, &mut self.literals);
        applier
            .push(&sink.encoder.take(), |step| {
                let (offset, bytes) = match step {
                    Step::Write { offset, bytes } => (offset, bytes.to_vec()),
                    Step::Zero { offset, len } => (offset, vec![0; usize::try_from(len).unwrap()]),
                    Step::Copy { basis_offset, offset, len } => {
                        copies.push(BasisCopy { basis_offset, offset, len });
                        (offset, piece(basis, basis_offset, len).to_vec())
                    }
                    _ => return Ok(()),
                };
                let start = usize::try_from(offset).unwrap();
                file[start..start + bytes.len()].copy_from_slice(&bytes);
                if !matches!(step, Step::Copy { .. }) {
                    literals.push((offset, bytes));
                }
                Ok::<_, std::convert::Infallible>(())
            })
            .unwrap();
        applier.finish().unwrap();
    }

    fn check(self, key: &Key, basis: &[u8], new: &[u8]) {
        assert!(self.file == new);
        assert_eq!(self.root.finish().unwrap(), file_root(key, new));
        let mut file = basis.to_vec();
        file.resize(basis.len().max(new.len()), 0);
        in_place(&InPlaceOrder::new(self.copies).unwrap(), &mut file);
        for (offset, bytes) in self.literals {
            let start = usize::try_from(offset).unwrap();
            file[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        file.truncate(new.len());
        assert!(file == new);
    }
}

fn in_place(order: &InPlaceOrder, file: &mut [u8]) {
    let mut scratch = Vec::new();
    for &step in order.steps() {
        match step {
            InPlaceStep::Save { basis_offset, len } => {
                scratch.extend_from_slice(piece(file, basis_offset, len));
            }
            InPlaceStep::Restore { scratch_offset, offset, len } => {
                let offset = usize::try_from(offset).unwrap();
                let bytes = piece(&scratch, scratch_offset, len);
                file[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            InPlaceStep::Copy { basis_offset, offset, len, .. } => {
                let from = usize::try_from(basis_offset).unwrap();
                let len = usize::try_from(len).unwrap();
                file.copy_within(from..from + len, usize::try_from(offset).unwrap());
            }
            _ => {}
        }
    }
}

fn piece(bytes: &[u8], offset: u64, len: u64) -> &[u8] {
    &bytes[usize::try_from(offset).unwrap()..][..usize::try_from(len).unwrap()]
}

#[derive(Default)]
struct Encoded {
    lead: u32,
    encoder: TokenEncoder,
}

impl TokenSink for Encoded {
    type Error = std::convert::Infallible;

    fn start(&mut self, lead: u32) -> Result<(), Self::Error> {
        self.lead = lead;
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
        self.encoder.push(token);
        Ok(())
    }
}
