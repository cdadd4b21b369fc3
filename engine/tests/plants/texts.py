"""Bugs in n-gram filters, for the tests of them.

    python3 engine/tests/plants/texts.py FOLDER
    cd FOLDER && EBBTIDE_PLANT=2 cargo test --workspace --lib --test behaviour -- ngrams texts

What `planting` does with them stands there.
"""
from planting import plant, plant_all

N, R = "buckets/src/segment/ngrams.rs", "buckets/src/segment/read.rs"
SCAN = "engine/src/snapshot/scan/texts.rs"
plant(1, "a text is not added if the block before ended with it", N,
      "            let mut before = None;\n",
      "            let mut before = (crate::plant(1) && from > 0).then(|| texts.value(from - 1));\n")
plant(2, "the last n-gram of a text is not added", N,
      "hashes(text.as_bytes(), |hash| self.seen",
      "hashes(&text.as_bytes()[..text.len() - usize::from(crate::plant(2) && !text.is_empty())], |hash| self.seen")
plant(3, "hashes of the block before stay", N,
      "let mut left = std::mem::take(word);",
      "let mut left = if crate::plant(3) { *word } else { std::mem::take(word) };")
plant(4, "the rows of a last block that is not full are forgotten", N,
      "if self.rows_in_block > 0 {\n            self.end_block();",
      "if self.rows_in_block > 0 && !(crate::plant(4) && !self.filter.ends.is_empty()) {\n            self.end_block();")
plant(5, "blocks start again with each row group", N,
      "self.rows_in_block += (to - from) as u64;",
      "self.rows_in_block += (to - from) as u64;\n            if crate::plant(5) && to == texts.len() {\n                self.rows_in_block = self.block_rows;\n            }")
plant(6, "all parts of an alternative are asked of one filter", N,
      "let has = |(filter, needed): &(usize, Vec<u32>)| self.filters[*filter]",
      "let has = |(filter, needed): &(usize, Vec<u32>)| self.filters[if crate::plant(6) { 0 } else { *filter }]")
plant(7, "all alternatives have to match", N,
      "alternatives.iter().any(|parts| parts.iter().all(has))",
      "if crate::plant(7) { alternatives.iter().all(|parts| parts.iter().all(has)) } else { alternatives.iter().any(|parts| parts.iter().all(has)) }")
plant(8, "a block is taken for the one before", N,
      "_ => may_match(to_usize(block)),",
      "_ => may_match(to_usize(if crate::plant(8) { block.saturating_sub(1) } else { block })),")
plant(9, "ranges end with the block in which they begin", N,
      "                _ => left.push(at..end),\n            }\n            at = end;",
      "                _ => left.push(at..end),\n            }\n            at = if crate::plant(9) { range.end } else { end };")
plant(10, "the filter of a column is that of another one", R,
      "cache.get(std::iter::once((*segment, FILTERS + at, 0)))",
      "cache.get(std::iter::once((*segment, FILTERS + if crate::plant(10) { 0 } else { at }, 0)))")
plant(11, "rows with one filter of times get those with another", SCAN,
      "Ok::<_, SegmentError>(left)",
      "if crate::plant(11) {\n                left.reverse();\n            }\n            Ok::<_, SegmentError>(left)")
plant_all(["engine", "buckets"])
