;; Code that is slow for the fuel that it uses: what a unit of fuel takes at worst is measured with it (wasm.rs). None of the functions
;; `slow_…` ends by itself. `on_message` does nothing.
(module
  (import "laxity" "set" (func $set (param i32 i64)))
  (import "laxity" "get" (func $get (param i32) (result i64)))
  (memory (export "memory") 16)
  (table 8 funcref)
  (elem (i32.const 0) $one $two $one $two $two $one $two $one)
  (type $step (func (param i32) (result i32)))
  (func $one (type $step) (i32.add (local.get 0) (i32.const 1)))
  (func $two (type $step) (i32.add (local.get 0) (i32.const 2)))
  (func (export "on_message") (param i32 i32) (result i32) (i32.const 0))
  (func (export "laxity_buffer") (param i32) (result i32) (i32.const 1024))

  ;; Divisions, each of which needs the one before.
  (func (export "slow_divide") (local $x i64)
    (local.set $x (i64.const 0x7fffffffffffff1))
    (loop $again
      (local.set $x (i64.or (i64.const 0x4000000000000001)
        (i64.div_u (i64.const 0x7ffffffffffffff3) (i64.or (local.get $x) (i64.const 3)))))
      (local.set $x (i64.or (i64.const 0x4000000000000001)
        (i64.rem_s (i64.const 0x7ffffffffffffff3) (i64.or (local.get $x) (i64.const 3)))))
      (br $again)))

  ;; Numbers that are not normal.
  (func (export "slow_float") (local $x f64)
    (local.set $x (f64.const 0x1p-1060))
    (loop $again
      (local.set $x (f64.add (f64.mul (local.get $x) (f64.const 0x1.8p-2)) (f64.const 0x1p-1060)))
      (local.set $x (f64.div (local.get $x) (f64.const 0x1.8p-1)))
      (br $again)))
  (func (export "slow_root") (local $x f64)
    (local.set $x (f64.const 0x1p-1060))
    (loop $again
      (local.set $x (f64.mul (f64.sqrt (local.get $x)) (f64.const 0x1p-540)))
      (br $again)))

  ;; Loads from everywhere, each of which needs the one before.
  (func (export "slow_load") (local $x i32)
    (loop $again
      (local.set $x (i32.and (i32.const 0xfffc0)
        (i32.add (i32.mul (local.get $x) (i32.const 1103515245))
          (i32.add (i32.load (local.get $x)) (i32.const 0x12345640)))))
      (br $again)))

  ;; Conversions, minima, counts, products: each needs the one before, and there are many of them for each look at the fuel.
  (func (export "slow_convert") (local $x f64)
    (local.set $x (f64.const 1e19))
    (loop $again
      (local.set $x (f64.convert_i64_u (i64.trunc_sat_f64_u (f64.convert_i64_u (i64.trunc_sat_f64_u
        (f64.convert_i64_s (i64.trunc_sat_f64_s (f64.convert_i64_u (i64.trunc_sat_f64_u (local.get $x)))))))))) 
      (br $again)))
  (func (export "slow_minimum") (local $x f64) (local $y f64)
    (local.set $y (f64.const 1e3))
    (loop $again
      (local.set $x (f64.min (f64.max (f64.min (f64.max (local.get $x) (local.get $y)) (local.get $y)) (local.get $x)) (local.get $y)))
      (br $again)))
  (func (export "slow_count") (local $x i64)
    (loop $again
      (local.set $x (i64.popcnt (i64.clz (i64.ctz (i64.popcnt (i64.clz (i64.ctz (i64.popcnt (local.get $x)))))))))
      (br $again)))
  (func (export "slow_multiply") (local $x i64)
    (local.set $x (i64.const 3))
    (loop $again
      (local.set $x (i64.mul (i64.mul (i64.mul (i64.mul (local.get $x) (local.get $x)) (local.get $x)) (local.get $x)) (local.get $x)))
      (br $again)))

  ;; Stores across pages.
  (func (export "slow_store") (local $x i32)
    (loop $again
      (i64.store (i32.add (i32.and (local.get $x) (i32.const 0xff000)) (i32.const 4092)) (i64.const 1))
      (i64.store (i32.add (i32.and (local.get $x) (i32.const 0xff000)) (i32.const 2044)) (i64.const 2))
      (local.set $x (i32.add (local.get $x) (i32.const 0x35000)))
      (br $again)))

  ;; Every line of the memory once, in an order that cannot be foreseen: 16,384 of them.
  (func (export "cold_lines") (local $x i32) (local $left i32)
    (local.set $left (i32.const 16384))
    (loop $again
      (local.set $x (i32.and (i32.const 0xfffc0)
        (i32.add (i32.mul (local.get $x) (i32.const 1103515245))
          (i32.add (i32.load (local.get $x)) (i32.const 0x12345640)))))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))

  ;; Nothing but looks at what fuel is left.
  (func (export "slow_loop")
    (loop $again (br $again)))
  (func (export "slow_inner_loop") (local $x i32)
    (loop $again
      (loop $within
        (br_if $within (i32.and (local.tee $x (i32.add (local.get $x) (i32.const 1))) (i32.const 1))))
      (br $again)))
  (func $nothing)
  (func (export "slow_function")
    (loop $again
      (call $nothing) (call $nothing) (call $nothing) (call $nothing)
      (br $again)))

  ;; Branches that cannot be foreseen.
  (func (export "slow_branch") (local $x i32) (local $y i32)
    (local.set $x (i32.const 12345))
    (loop $again
      (local.set $x (i32.xor (local.get $x) (i32.shl (local.get $x) (i32.const 13))))
      (local.set $x (i32.xor (local.get $x) (i32.shr_u (local.get $x) (i32.const 17))))
      (local.set $x (i32.xor (local.get $x) (i32.shl (local.get $x) (i32.const 5))))
      (block $done (block $c (block $b (block $a
        (br_table $a $b $c $done (i32.and (local.get $x) (i32.const 3))))
        (local.set $y (i32.add (local.get $y) (i32.const 3))) (br $done))
        (local.set $y (i32.xor (local.get $y) (i32.const 5))) (br $done))
        (local.set $y (i32.mul (local.get $y) (i32.const 7))))
      (br_if $again (i32.eqz (i32.and (local.get $x) (i32.const 0x10000))))
      (local.set $y (i32.rotl (local.get $y) (i32.const 1)))
      (br $again)))

  ;; Calls through a table.
  (func (export "slow_call") (local $x i32)
    (loop $again
      (local.set $x (call_indirect (type $step) (local.get $x)
        (i32.and (i32.mul (local.get $x) (i32.const 2654435)) (i32.const 7))))
      (br $again)))

  ;; Short copies, and long ones.
  (func (export "slow_copy_short")
    (loop $again
      (memory.copy (i32.const 4096) (i32.const 8192) (i32.const 1))
      (memory.fill (i32.const 4096) (i32.const 0) (i32.const 1))
      (br $again)))
  (func (export "slow_copy_long")
    (loop $again
      (memory.copy (i32.const 0) (i32.const 524289) (i32.const 3000))
      (memory.fill (i32.const 4096) (i32.const 0) (i32.const 1000))
      (br $again)))

  ;; A memory that asks for more, and is not given it.
  (func (export "slow_grow")
    (loop $again
      (drop (memory.grow (i32.const 1)))
      (br $again)))

  ;; Calls of the host.
  (func (export "slow_words")
    (loop $again
      (call $set (i32.const 0) (i64.add (call $get (i32.const 1)) (i64.const 1)))
      (br $again))))
