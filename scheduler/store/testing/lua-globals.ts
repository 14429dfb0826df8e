import type { Redis } from 'ioredis';

/** A function of compiled Lua, or its main chunk (line 0). */
export interface LuaFunction {
  /** Line of the word `function`. */
  readonly line: number;
  readonly readGlobals: ReadonlySet<string>;
  readonly writtenGlobals: ReadonlySet<string>;
  readonly inner: readonly LuaFunction[];
}

/** Compiles a script with the Lua of Redis, and reads which globals each of its functions uses (Lua 5.1, `ldump.c` and `lopcodes.h`). */
export async function compileLua(redis: Redis, lua: string): Promise<LuaFunction> {
  const inHex = `(string.gsub(string.dump(assert(loadstring(ARGV[1]))), '.', function(c) return string.format('%02x', string.byte(c)) end))`;
  return readFunction(new Dump(Buffer.from(String(await redis.eval(`return ${inHex}`, 0, lua)), 'hex')));
}

/** The globals of a function and of all functions inside it. */
export function allGlobals(outer: LuaFunction, kind: 'readGlobals' | 'writtenGlobals'): ReadonlySet<string> {
  return new Set([...outer[kind], ...outer.inner.flatMap((inner) => [...allGlobals(inner, kind)])]);
}

const GETGLOBAL = 5;
const SETGLOBAL = 7;
const STRING_CONSTANT = 4;
/** Number of bytes that follow the type of a constant, by type: nil (0), boolean (1), number (3). */
const CONSTANT_BYTES = [0, 1, 0, 8];
/** 64-bit little endian, 4-byte `int` and instructions, 8-byte `size_t` and numbers. */
const HEADER = Buffer.from('1b4c75615100010408040800', 'hex');

class Dump {
  readonly #bytes: Buffer;
  #at = HEADER.length;

  constructor(bytes: Buffer) {
    if (!bytes.subarray(0, HEADER.length).equals(HEADER))
      throw new Error('Redis compiled the script to another format.');
    this.#bytes = bytes;
  }

  skip(bytes: number): void {
    this.#at += bytes;
  }

  byte(): number {
    return this.#bytes.readUInt8(this.#at++);
  }

  int(): number {
    this.#at += 4;
    return this.#bytes.readUInt32LE(this.#at - 4);
  }

  string(): string {
    const length = Number(this.#bytes.readBigUInt64LE(this.#at));
    this.#at += 8 + length;
    return this.#bytes.toString('latin1', this.#at - length, this.#at - 1);
  }

  list<T>(read: () => T): readonly T[] {
    return Array.from({ length: this.int() }, read);
  }
}

function readFunction(dump: Dump): LuaFunction {
  dump.string();
  const line = dump.int();
  // The last line (4 bytes), the numbers of upvalues, parameters and registers, and the mark of a vararg function (1 byte each).
  dump.skip(8);
  const code = dump.list(() => dump.int());
  const constants = dump.list(() => {
    const type = dump.byte();
    if (type === STRING_CONSTANT) return dump.string();
    dump.skip(CONSTANT_BYTES[type] ?? 0);
    return '';
  });
  const inner = dump.list(() => readFunction(dump));
  // For debuggers: the lines of the instructions, the local variables, the names of the upvalues.
  dump.list(() => dump.int());
  dump.list(() => [dump.string(), dump.skip(8)]);
  dump.list(() => dump.string());
  // The lowest 6 bits of an instruction are the operation, and the highest 18 bits the index of the constant with the global's name.
  const globals = (operation: number) =>
    new Set(
      code
        .filter((instruction) => (instruction & 0x3f) === operation)
        .map((instruction) => constants[instruction >>> 14] ?? ''),
    );
  return { line, readGlobals: globals(GETGLOBAL), writtenGlobals: globals(SETGLOBAL), inner };
}
