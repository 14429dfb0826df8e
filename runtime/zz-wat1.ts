import { tryWat } from './zz-wat.ts';
const I=(m,n,sig)=>`(import "${m}" "${n}" (func $${n.replace(/[^a-z0-9]/g,'_')} ${sig}))`;
const Q='pie:inferlet/queue@0.1.0', S='pie:inferlet/session@0.1.0';
const heap=`(global $brk (mut i32) (i32.const 4096)) (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local i32) (local.set 4 (i32.and (i32.add (global.get $brk) (i32.const 7)) (i32.const -8))) (global.set $brk (i32.add (local.get 4) (local.get 3))) (local.get 4))`;
// sync form
await tryWat('sync', `(module ${I(Q,'[constructor]queue','(param i32 i32) (result i32)')} ${I(Q,'[method]queue.synchronize','(param i32) (result i32)')} (import "${Q}" "[future-read-0][method]queue.synchronize" (func $read (param i32 i32) (result i32))) (import "${Q}" "[future-drop-readable-0][method]queue.synchronize" (func $drop (param i32)))
 (memory (export "memory") 1) (data (i32.const 16) "42") ${heap}
 (func (export "run") (param i32 i32) (result i32) (local i32 i32) (local.set 2 (call $_constructor_queue (i32.const 16) (i32.const 1))) (local.set 3 (call $_method_queue_synchronize (local.get 2))) (drop (call $read (local.get 3) (i32.const 64))) (call $drop (local.get 3)) (i32.store8 (i32.const 32) (i32.load8_u (i32.const 64))) (i32.store (i32.const 36) (i32.const 16)) (i32.store (i32.const 40) (i32.const 2)) (i32.const 32)))`);
const cb=(body,extra='',imports='')=>`(module ${imports} (import "[export]$root" "[task-return]run" (func $ret (param i32 i32 i32))) (memory (export "memory") 1) (data (i32.const 16) "42\\ff\\fe") ${heap} ${extra}
 (func (export "[async-lift]run") (param i32 i32) (result i32) ${body})
 (func (export "[callback][async-lift]run") (param i32 i32 i32) (result i32) (call $ret (i32.const 0) (i32.const 16) (i32.const 2)) (i32.const 0)))`;
await tryWat('cb plain', cb(`(call $ret (i32.const 0) (i32.const 16) (i32.const 2)) (i32.const 0)`));
await tryWat('cb yield', cb(`(i32.const 1)`));
await tryWat('bad utf8', cb(`(call $ret (i32.const 0) (i32.const 16) (i32.const 4)) (i32.const 0)`));
await tryWat('wild ptr', cb(`(call $ret (i32.const 0) (i32.const -16) (i32.const 4)) (i32.const 0)`));
await tryWat('twice', cb(`(call $ret (i32.const 0) (i32.const 16) (i32.const 2)) (call $ret (i32.const 0) (i32.const 16) (i32.const 2)) (i32.const 0)`));
await tryWat('bad disc', cb(`(call $ret (i32.const 7) (i32.const 16) (i32.const 2)) (i32.const 0)`));
await tryWat('bad code', cb(`(i32.const 13)`));
await tryWat('bad set', cb(`(i32.const 82)`));
await tryWat('spin', cb(`(loop (br 0)) (i32.const 0)`));
await tryWat('fill', cb(`(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65000)) (br 0)) (i32.const 0)`));
await tryWat('recurse', cb(`(call $f) (i32.const 0)`, `(func $f (call $f) (call $f))`));
await tryWat('recurse forever tail', cb(`(return_call $g (i32.const 0))`, `(func $g (param i32) (result i32) (return_call $g (i32.const 1)))`));
await tryWat('grow', cb(`(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)`));
await tryWat('handles', cb(`(loop (drop (call $_waitable_set_new_)) (br 0)) (i32.const 0)`,'',I('$root','[waitable-set-new]','(result i32)')));
await tryWat('use after drop', cb(`(call $_resource_drop_queue (i32.const 1)) (i32.const 0)`,'',I(Q,'[resource-drop]queue','(param i32)')));
await tryWat('catch kill', cb(`(loop $l (block $b (try_table (catch_all $b) (loop (br 0)))) (br $l)) (i32.const 0)`));
await tryWat('catch host trap', cb(`(loop $l (block $b (try_table (catch_all $b) (call $_resource_drop_queue (i32.const 1)))) (br $l)) (i32.const 0)`,'',I(Q,'[resource-drop]queue','(param i32)')));
await tryWat('start spins', cb(`(i32.const 0)`,`(func $s (loop (br 0))) (start $s)`));
await tryWat('realloc spins', `(module (import "[export]$root" "[task-return]run" (func $ret (param i32 i32 i32))) (memory (export "memory") 1) (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (loop (br 0)) (i32.const 0)) (func (export "[async-lift]run") (param i32 i32) (result i32) (i32.const 0)) (func (export "[callback][async-lift]run") (param i32 i32 i32) (result i32) (i32.const 0)))`);
await tryWat('realloc wild', `(module (import "[export]$root" "[task-return]run" (func $ret (param i32 i32 i32))) (memory (export "memory") 1) (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const -8)) (func (export "[async-lift]run") (param i32 i32) (result i32) (i32.const 0)) (func (export "[callback][async-lift]run") (param i32 i32 i32) (result i32) (i32.const 0)))`);
process.exit(0);
