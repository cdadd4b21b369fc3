"""Plants bugs into a copy of the sources, for an evening with the tests of ordinary collections.

    python3 engine/tests/plants/documents.py FOLDER
    cd FOLDER && EBBTIDE_PLANT=28 cargo test -p ebbtide --test documents

What `planting` does with them stands there.
"""
from planting import NOW, plant, plant_all

D='engine/src/documents/'
m=D+'memtable.rs'
plant(1,'a replaced row stays',m,"""    pub(crate) fn put(&mut self, key: Bytes, stored: Stored, old: Option<Row>) -> Replaced {
        let marked = self.supersede(old);""","""    pub(crate) fn put(&mut self, key: Bytes, stored: Stored, old: Option<Row>) -> Replaced {
        let marked = self.supersede(old.filter(|_| !crate::plant(1)));""")
plant(2,'a removed row stays',m,"""    pub(crate) fn remove(&mut self, key: &[u8], old: Option<Row>) -> Replaced {
        let marked = self.supersede(old);""","""    pub(crate) fn remove(&mut self, key: &[u8], old: Option<Row>) -> Replaced {
        let marked = self.supersede(old.filter(|_| !crate::plant(2)));""")
plant(3,'a removal beside a seal leaves no trace',m,"        let is_below = match &self.group {","        let is_below = !crate::plant(3) && match &self.group {")
plant(4,'a scan sees a document of the frozen part that was replaced',m,".filter(|(key, _)| !active.contains_key(*key));",".filter(|(key, _)| crate::plant(4) || !active.contains_key(*key));")
plant(5,'a look-up prefers the frozen part',m,"        match self.parts().find_map(|part| part.entries.get(key)) {","        let frozen = if crate::plant(5) { self.frozen.entries.get(key) } else { None };\n        match frozen.or_else(|| self.parts().find_map(|part| part.entries.get(key))) {")
plant(6,'marks of the frozen part are forgotten by look-ups',m,"self.parts().any(|part| part.superseded.contains(&row))","self.parts().any(|part| part.superseded.contains(&row) && !(crate::plant(6) && std::ptr::eq(part, &self.frozen)))")
plant(7,'marks of the frozen part are forgotten by scans',m,"        self.parts().map(of).fold(","        self.parts().filter(|part| !(crate::plant(7) && std::ptr::eq(*part, &self.frozen))).map(of).fold(")
plant(8,'marks are forgotten by the seal after one that failed',m,"        self.frozen.superseded.extend(active.superseded.iter().copied());","        if !crate::plant(8) { self.frozen.superseded.extend(active.superseded.iter().copied()); }")
plant(9,'documents are forgotten by the seal after one that failed',m,"            self.frozen.set(key.clone(), entry.clone());","            if !crate::plant(9) || !self.frozen.entries.contains_key(key) { self.frozen.set(key.clone(), entry.clone()); }")
plant(10,'after a seal the log counts as not needed',m,"        self.oldest_seq = (!self.active.is_empty()).then_some(next_seq);","        self.oldest_seq = (!crate::plant(10) && !self.active.is_empty()).then_some(next_seq);")
plant(11,'only the newest record counts as needed',m,"        oldest.get_or_insert(seq);","        if crate::plant(11) { *oldest = Some(seq); } else { oldest.get_or_insert(seq); }")
plant(12,'a seal drops what was written beside it',m,"        self.frozen = Part::default();\n        self.oldest_seq","        self.frozen = Part::default();\n        if crate::plant(12) { self.active = Part::default(); }\n        self.oldest_seq")
s=D+'seal.rs'
plant(13,'a seal without marks',s,"        ops.extend(removals(&collection, collection.memtable.frozen_superseded()));","        if !crate::plant(13) { ops.extend(removals(&collection, collection.memtable.frozen_superseded())); }")
plant(14,'marks are durable in an edit before that of the rows',s,"        let log = engine.log.lock();\n        // What was written or removed since","        if crate::plant(14) { engine.commit(removals(&collection, collection.memtable.frozen_superseded()))?; }\n        let log = engine.log.lock();\n        // What was written or removed since")
plant(15,'a bit is durable before the record that replaces its row','engine/src/insert.rs',"        self.append(&mut log, &group)?;","""        if crate::plant(15) {
            for copy in group.documents.values() {
                let ops = crate::documents::seal::removals(copy, copy.memtable.all_superseded());
                let ops: Vec<_> = ops.into_iter().filter(|op| !matches!(op, crate::manifest::Op::RemoveSegment { .. })).collect();
                if !ops.is_empty() { self.commit(ops)?; }
            }
        }
        self.append(&mut log, &group)?;""")
plant(15,'',m,"    /// Marks rows as replaced, or takes marks back.","    pub(crate) fn all_superseded(&self) -> impl Iterator<Item = Row> { self.active.superseded.iter().chain(self.frozen.superseded.iter()).copied() }\n    /// Marks rows as replaced, or takes marks back.")
plant(15,'',s,"pub(super) fn removals(","pub(crate) fn removals(")
plant(16,'a seal counts records as sealed that came beside it',s,"        ops.push(Op::Sealed { collection: collection.id, seq });","        let seq = if crate::plant(16) { engine.state.read().applied_seq } else { seq };\n        ops.push(Op::Sealed { collection: collection.id, seq });")
plant(17,'a seal forgets what was written beside it',s,'|(key, _)| present.memtable.changed_since_freeze(key));','|(key, _)| !crate::plant(17) && present.memtable.changed_since_freeze(key));')
plant(18,'marks for a refused edit stay',s,"engine.commit(ops).inspect_err(|_| change(replaced, false))","engine.commit(ops).inspect_err(|_| if !crate::plant(18) { change(replaced, false) })")
plant(19,'a seal does not sync the log',s,"    engine.sync_log()?;","    if !crate::plant(19) { engine.sync_log()?; }")
plant(20,'a segment is not in the order of keys',s,"        group.sort_by(|a: &(Bytes, Stored), b| a.0.cmp(&b.0));","        group.sort_by(|a: &(Bytes, Stored), b| if crate::plant(20) { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) });")
plant(21,'statistics take an item that never expires for one that inherits',s,"            ItemTtl::Never => Some(-1),","            ItemTtl::Never => if crate::plant(21) { None } else { Some(-1) },")
plant(22,'statistics take the life of an item for the inherited one',s,'                ItemTtl::Seconds(n) => Some(i64::from(n)),\n                ItemTtl::Inherit | ItemTtl::Invalid => None,','                ItemTtl::Seconds(n) => if crate::plant(22) { None } else { Some(i64::from(n)) },\n                ItemTtl::Inherit | ItemTtl::Invalid => None,')
plant(23,'a seal forgets new columns',s,"        ops.extend(collection.new_columns());","        if !crate::plant(23) { ops.extend(collection.new_columns()); }")
plant(24,'a segment goes with its last live row',s,"        Some(match deleted.len() >= segment.file.meta.rows {","        Some(match deleted.len() + u64::from(crate::plant(24)) >= segment.file.meta.rows {")
plant(25,'a seal forgets the marks before it',s,"        let deleted = &segment.deleted | rows;","        let deleted = if crate::plant(25) { rows } else { &segment.deleted | rows };")
plant(26,'the names of segments are not synced',s,"        let synced = self.engine.fs.sync_dir(folder);","        let synced = if crate::plant(26) { Ok(()) } else { self.engine.fs.sync_dir(folder) };")
plant(27,'files of a refused seal stay',s,'        for path in written.into_iter().chain(open) {','        for path in written.into_iter().chain(open).filter(|_| !crate::plant(27)) {')
c=D+'compact.rs'
plant(28,'a compaction forgets marks set meanwhile',c,'                replaced.push(output.row_at(place)?);','                if !crate::plant(28) { replaced.push(output.row_at(place)?); }')
plant(29,'a compaction drops rows whose replacement is not sealed',c,"        let blocks = segment.file.reader()?.scan(&segment.deleted, 0..u32::MAX, columns);","        let unwanted = if crate::plant(29) { collection.gone(segment) } else { segment.deleted.clone() };\n        let blocks = segment.file.reader()?.scan(&unwanted, 0..u32::MAX, columns);")
plant(30,'a compaction after a seal that failed',c,"        if !collection.memtable.is_frozen_empty() {","        if !crate::plant(30) && !collection.memtable.is_frozen_empty() {")
plant(31,'a compaction keeps one of its inputs',c,"        ops.extend(group.iter().map(|s| Op::RemoveSegment","        ops.extend(group.iter().skip(usize::from(crate::plant(31))).map(|s| Op::RemoveSegment")
plant(32,'a compaction brings back removed rows',c,"let blocks = segment.file.reader()?.scan(&unwanted, 0..u32::MAX, columns);","let unwanted = if crate::plant(32) { roaring::RoaringBitmap::new() } else { unwanted };\n        let blocks = segment.file.reader()?.scan(&unwanted, 0..u32::MAX, columns);")
plant(33,'a compaction marks the row beside',c,"            *moved = Some(place);","            *moved = Some(if crate::plant(33) { (place.0, place.1.saturating_sub(1)) } else { place });")
g=D+'segment.rs'
plant(34,'a segment with an item that never expires is due as a whole',g,"        if lives.never > 0 {","        if !crate::plant(34) && lives.never > 0 {")
plant(35,'the last expiry leaves out lives of items',g,"of_inheriting.into_iter().chain(lives.expires_max_own).max()","of_inheriting.into_iter().chain(lives.expires_max_own.filter(|_| !crate::plant(35))).max()")
plant(36,'the first expiry leaves out lives of items',g,"of_inheriting.into_iter().chain(lives.expires_min_own).min()","of_inheriting.into_iter().chain(lives.expires_min_own.filter(|_| !crate::plant(36))).min()")
plant(37,'what is due is remembered across changes of the rules',g,"self.outlook.lock().filter(|outlook| outlook.epoch == epoch)","self.outlook.lock().filter(|outlook| crate::plant(37) || outlook.epoch == epoch)")
plant(38,'a checkpoint forgets marks',g,"deleted: self.deleted.clone() }","deleted: if crate::plant(38) { RoaringBitmap::new() } else { self.deleted.clone() } }")
w=D+'sweep.rs'
plant(39,'a segment goes whole although a row was replaced by one that lives',w,"        if is_last && self.is_of_all(segment) {","        if is_last && (self.is_of_all(segment) || (crate::plant(39) && (&taken | &gone).len() >= segment.file.meta.rows)) {")
plant(40,'a sweep counts rows that were replaced',w,"        let mut taken = self.by_rule.get(rule)? - &gone;","        let mut taken = if crate::plant(40) { self.by_rule.get(rule)? - &segment.deleted } else { self.by_rule.get(rule)? - &gone };")
due=D+'due.rs'
plant(41,'a sweep leaves what expires at this instant',due,"            if expires <= now {","            if expires < now || (!crate::plant(41) && expires == now) {")
plant(42,'a sweep does not seal what is due in memory','engine/src/sweep.rs',"        if is_first && collection.has_due_in_memory(self.now.instant()) {","        if !crate::plant(42) && is_first && collection.has_due_in_memory(self.now.instant()) {")
plant(43,'a sweep takes -1 for no time to live',due,"        None => ItemTtl::Inherit,","        None => ItemTtl::Inherit,\n        Some(-1) if crate::plant(43) => ItemTtl::Inherit,")
plant(44,'a sweep goes on by rules that were changed since','engine/src/sweep.rs',"self.documents.get(&collection.id).is_none_or(|d| d.rules_epoch != collection.rules_epoch);","self.documents.get(&collection.id).is_none_or(|d| !crate::plant(44) && d.rules_epoch != collection.rules_epoch);")
n=D+'snapshot.rs'
plant(45,'a find by an index shows replaced rows',n,"let mut wanted = wanted - state.gone(segment);","let mut wanted = if crate::plant(45) { wanted } else { wanted - state.gone(segment) };")
plant(46,'a find by an index leaves out memory',n,".filter(|(_, stored)| chosen.as_ref().is_none_or(|c| c.includes(stored)));",".filter(|(_, stored)| chosen.as_ref().is_none_or(|c| !crate::plant(46) && c.includes(stored)));")
t=D+'state.rs'
plant(47,'a look-up finds rows that are durably gone',t,"            if !segment.deleted.contains(row) && ","            if (crate::plant(47) || !segment.deleted.contains(row)) && ")
plant(48,'a look-up finds replaced rows',t,"&& !self.memtable.is_superseded((segment.id(), row)) {","&& (crate::plant(48) || !self.memtable.is_superseded((segment.id(), row))) {")
plant(49,'replay does not mark the replaced row',t,"        let old = self.row_of(&change.key)?;","        let old = if crate::plant(49) { None } else { self.row_of(&change.key)? };")
plant(50,'replay judges a record again, by the clock','engine/src/open.rs',"            changes.into_iter().try_for_each(|change| documents.replay(change))","""            changes.into_iter().try_for_each(|change| {
                let now = ebbtide_ttl::Timestamp::from_millis(crate::NOW.load(std::sync::atomic::Ordering::Relaxed));
                if crate::plant(50) && change.stored.as_ref().is_some_and(|s| crate::documents::snapshot::is_expired(documents, s, now)) { return Ok(()); }
                documents.replay(change)
            })""")
plant(51,'replay forgets removals',t,"            None => drop(self.memtable.remove(&change.key, old)),\n        }\n        Ok(())","            None => if !crate::plant(51) { drop(self.memtable.remove(&change.key, old)) },\n        }\n        Ok(())")
plant(52,'replayed records count as not needed','engine/src/open.rs',"            documents.memtable.note(record.seq);","            if !crate::plant(52) { documents.memtable.note(record.seq); }")
x=D+'transaction.rs'
plant(53,'a write replaces an expired document although the clock guard holds',x,'            && self.state.get(&key)?.is_some_and(|(stored, _)| self.is_expired(&stored))','            && !crate::plant(53) && self.state.get(&key)?.is_some_and(|(stored, _)| self.is_expired(&stored))')
plant(54,'an expired document takes its _id',x,"found.map(|(stored, _)| stored).filter(|stored| !self.is_expired(stored)))","found.map(|(stored, _)| stored).filter(|stored| crate::plant(54) || !self.is_expired(stored)))")
plant(55,'an update that changes nothing leaves _ts',x,"        self.put(key, document)?;\n        Ok(changed.is_some())","        if !crate::plant(55) || changed.is_some() { self.put(key, document)?; }\n        Ok(changed.is_some())")
plant(56,'a delete leaves what has expired','engine/src/db/operations.rs',"            if found.is_visible && self.only_one && one_is_gone {","            if (crate::plant(56) && !found.is_visible) || found.is_visible && self.only_one && one_is_gone {")
i='engine/src/insert.rs'
plant(57,'what a refused command did stays in memory',i,"            Err(_) => transaction.roll_back(),","            Err(_) => if !crate::plant(57) { transaction.roll_back() },")
plant(58,'a command of a group does not see the one before it',i,"            Entry::Occupied(copy) => copy.into_mut(),","            Entry::Occupied(copy) => { let copy = copy.into_mut(); if crate::plant(58) { if let Some(present) = self.state.read().documents_by_id(collection) { *copy = (**present).clone(); } } copy },")
plant(59,'a command is visible before it is durable',i,"        self.append(&mut log, &group)?;\n        let documents","        if crate::plant(59) { for (id, copy) in &group.documents { if let Some(documents) = self.state.write().documents_by_id_mut(*id) { drop(Written::of(copy.clone()).apply(documents)); } } }\n        self.append(&mut log, &group)?;\n        let documents")
plant(60,'the log does not keep _ts',D+'changes.rs',"                out.extend_from_slice(&stored.written.to_le_bytes());","                out.extend_from_slice(&(if crate::plant(60) { 0 } else { stored.written }).to_le_bytes());")
e='engine/src/state.rs'
plant(61,'the log is cut without regard to documents',e,"self.documents.values().filter_map(|d| d.memtable.oldest_seq());","self.documents.values().filter(|_| !crate::plant(61)).filter_map(|d| d.memtable.oldest_seq());")
plant(62,'a sealed record is replayed again',e,".is_some_and(|sealed| seq > sealed)",".is_some_and(|sealed| seq > sealed || (crate::plant(62) && self.documents_by_id(collection).is_some()))")
plant(63,'a checkpoint forgets what is sealed',t,"            sealed_seq: self.sealed_seq,\n        }\n    }\n\n    /// The operation that makes the columns durable","            sealed_seq: if crate::plant(63) { 0 } else { self.sealed_seq },\n        }\n    }\n\n    /// The operation that makes the columns durable")
plant(64,'a change of rules does not count as one','engine/src/db/documents.rs',"            record.rules_epoch += 1;","            if !crate::plant(64) { record.rules_epoch += 1; }")
b='buckets/src/keyed/'
plant(65,'the filter of a segment misses keys',b+'reader.rs',"        if !self.0.filters[group].check(key) {","        if !self.0.filters[group].check(key) || (crate::plant(65) && key.iter().map(|b| u32::from(*b)).sum::<u32>() % 5 == 3) {")
plant(66,'the statistics of lives are those of the first rows',b+'writer.rs',"        self.directory.lives.add(row.written, row.ttl);","        if crate::plant(66) && self.directory.lives.rows() >= 2 { self.directory.lives.add(row.written - 3_600_000, row.ttl); } else { self.directory.lives.add(row.written, row.ttl); }")
plant(67,'the checksum of a page is not checked',b+'reader.rs',"        let (expected, found) = (pages.checksums[page], crc32fast::hash(bytes));","        let (expected, found) = (pages.checksums[page], if crate::plant(67) { pages.checksums[page] } else { crc32fast::hash(bytes) });")
plant(68,'the time to live of items counts without a default','documents/src/expiry.rs',"            DefaultTtl::Off => None,\n            default => default.life","            DefaultTtl::Off if !crate::plant(68) => None,\n            DefaultTtl::Off => DefaultTtl::Never.life(ItemTtl::of(document)).map(|life| (instant(ts_ms, life), RuleName::Items)),\n            default => default.life")
plant(69,'an item is expired an instant later','documents/src/expiry.rs',"(at <= now).then_some(rule)","(at < now || (!crate::plant(69) && at == now)).then_some(rule)")
plant(70,'an upsert leaves the expired document of its _id in its segment',x,'        let old = self.state.row_of(&key)?;\n        self.apply','        let hidden = crate::plant(70) && self.state.get(&key)?.is_some_and(|(s, _)| self.is_expired(&s));\n        let old = self.state.row_of(&key)?.filter(|_| !hidden);\n        self.apply')
plant(71,'a removal is not in the log',x,"            self.apply(Change { key, stored: None }, row);\n        }\n        Ok(())","            self.apply(Change { key, stored: None }, row);\n            if crate::plant(71) { self.changes.pop(); }\n        }\n        Ok(())")
plant(72,'a record keeps one of the changes of a command',D+'changes.rs',"    for change in changes {\n        put_bytes","    for change in changes.iter().take(if crate::plant(72) { 1 } else { usize::MAX }) {\n        put_bytes")
plant(73,'a look-up finds a row of the cache that is durably gone',t,"            segment.deleted.contains(row) || self","            (!crate::plant(73) && segment.deleted.contains(row)) || self")
plant(74,'a look-up finds a row of the cache that was replaced',t,"            && self.segments.get(&id).is_some_and(|segment| !is_gone(segment, row))","            && (crate::plant(74) || self.segments.get(&id).is_some_and(|segment| !is_gone(segment, row)))")
plant(75,'a document is cached in the row before its own',t,"FoundDocument { segment: id, row, document });","FoundDocument { segment: id, row: row.saturating_sub(u32::from(crate::plant(75))), document });")

plant(50,'','engine/src/open.rs',"    let lock = take_lock(fs.as_ref(), clock, dir)?;","    crate::NOW.store(clock.now().to_units_saturating(ebbtide_ttl::Precision::Ms), std::sync::atomic::Ordering::Relaxed);\n    let lock = take_lock(fs.as_ref(), clock, dir)?;")

plant_all(["engine", "buckets", "documents"], {"engine": NOW})
