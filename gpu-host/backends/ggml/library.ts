import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { KoffiFunc, LibraryHandle } from 'koffi';
import { ModelError } from '#gpu-host/models/errors.ts';
import { CONSTANTS, type GgmlFunctions, type Pointer, SIGNATURES } from './signatures.ts';

/**
 * The build of ggml that `signatures.ts` describes. ggml promises no stable ABI, and a wrong signature corrupts memory in silence, so the backend
 * loads no other build. The packages of one version of node-llama-cpp all hold the same build.
 */
export const PINNED = { packages: '3.22.1', version: '0.25.1', commit: '0ad4a86' } as const;

/** Package with the libraries for this machine's CPU, by `process.platform` and `process.arch`. */
const CPU_PACKAGES: Readonly<Record<string, string>> = { 'linux x64': 'linux-x64', 'linux arm64': 'linux-arm64' };

type Functions = { readonly [name in keyof GgmlFunctions]: KoffiFunc<GgmlFunctions[name]> };

/** A computing device that ggml found. */
export interface GgmlDevice {
  readonly handle: Pointer;
  readonly name: string;
  readonly description: string;
  readonly isCpu: boolean;
}

/** A file in the address space of the process, only to be read. */
export interface MappedFile {
  readonly address: Pointer;
  readonly bytes: number;
  /** Gives the memory of a range back to the system, which reads the range from the file when it is needed again. */
  forget(offset: number, bytes: number): void;
  /** Nothing may read the range afterwards. */
  unmap(): void;
}

/** Arguments and results of `mmap` and `madvise`, the same on Linux and macOS. */
const PROT_READ = 1;
const MAP_SHARED = 1;
const MADV_DONTNEED = 4;
const MAP_FAILED = (1n << 64n) - 1n;
/** A multiple of the page size of every machine for which there are libraries. */
const PAGE_BYTES = 65_536;

/** ggml's functions, bound to the libraries of the pinned packages. A process loads them once. */
export class Ggml {
  readonly functions: Functions;
  readonly devices: readonly GgmlDevice[];
  readonly #koffi: typeof import('koffi');
  #threadsType: ReturnType<typeof import('koffi').proto> | undefined;
  readonly #libc: LibraryHandle;

  private constructor(koffi: typeof import('koffi'), directory: string) {
    this.#koffi = koffi;
    this.#libc = koffi.load(process.platform === 'darwin' ? '/usr/lib/libSystem.B.dylib' : 'libc.so.6');
    this.functions = bind(koffi, directory);
    const { functions } = this;
    const found = { version: functions.ggml_version(), commit: functions.ggml_commit() };
    if (found.version !== PINNED.version || found.commit !== PINNED.commit)
      throw notUsable(
        `${directory} holds ggml ${found.version} (${found.commit}), not ${PINNED.version} (${PINNED.commit})`,
      );
    this.#silence();
    functions.ggml_backend_load_all_from_path(directory);
    this.devices = Array.from({ length: functions.ggml_backend_dev_count() }, (_, i) => {
      const handle = functions.ggml_backend_dev_get(i);
      return {
        handle,
        name: functions.ggml_backend_dev_name(handle),
        description: functions.ggml_backend_dev_description(handle),
        isCpu: functions.ggml_backend_dev_type(handle) === CONSTANTS.GGML_BACKEND_DEVICE_TYPE_CPU,
      };
    });
  }

  /** @throws ModelError `unsupported-model` when the packages are not installed, or hold another build */
  static async open(): Promise<Ggml> {
    opened ??= Ggml.#open();
    return opened;
  }

  static async #open(): Promise<Ggml> {
    const system = `${process.platform} ${process.arch}`;
    const name = CPU_PACKAGES[system];
    if (name === undefined) throw notUsable(`there is no package with libraries for ${system}`);
    try {
      const koffi = await import('koffi');
      // The package exports a file in its folder `dist`; the libraries are beside that folder.
      const exported = fileURLToPath(import.meta.resolve(`@node-llama-cpp/${name}`));
      return new Ggml(koffi, join(exported, '..', '..', 'bins', name));
    } catch (error) {
      if (error instanceof ModelError) throw error;
      throw notUsable(
        `the packages "koffi" and "@node-llama-cpp/${name}" cannot be loaded: ${(error as Error).message}`,
        error,
      );
    }
  }

  /** The CPU. @throws ModelError when no library for this CPU could be loaded */
  cpu(): GgmlDevice {
    const cpu = this.devices.find(({ isCpu }) => isCpu);
    if (cpu === undefined) throw notUsable('no library of the package runs on this CPU');
    return cpu;
  }

  /** Sets the number of threads of the CPU's `backend`. */
  setThreads(backend: Pointer, device: GgmlDevice, threads: number): void {
    const registry = this.functions.ggml_backend_dev_backend_reg(device.handle);
    const set = this.functions.ggml_backend_reg_get_proc_address(registry, 'ggml_backend_set_n_threads');
    this.#threadsType ??= this.#koffi.proto('void', ['void *', 'int']);
    this.#koffi.call(set, this.#threadsType, backend, threads);
  }

  /**
   * Kinds of memory in which a device keeps matrices in another order, in which it multiplies faster; the best one first. A matrix must not be put
   * there unless `ggml_backend_dev_supports_op` approves: ggml would end the process.
   */
  extraBufferTypes(device: GgmlDevice): Pointer[] {
    const registry = this.functions.ggml_backend_dev_backend_reg(device.handle);
    const get = this.functions.ggml_backend_reg_get_proc_address(registry, 'ggml_backend_dev_get_extra_bufts');
    if (!get) return [];
    const list: Pointer = this.#koffi.call(get, this.#koffi.proto('void *', ['void *']), device.handle);
    const types: Pointer[] = [];
    if (!list) return types;
    for (;;) {
      const type: Pointer | null = this.#koffi.decode(list, types.length * 8, 'void *');
      if (!type) return types;
      types.push(type);
    }
  }

  /** Maps the first `bytes` bytes of an open file. The descriptor may be closed afterwards. @throws Error when the system refuses */
  map(descriptor: number, bytes: number): MappedFile {
    this.#mapping ??= {
      mmap: this.#libc.func('mmap', 'void *', ['void *', 'size_t', 'int', 'int', 'int', 'int64_t']),
      munmap: this.#libc.func('munmap', 'int', ['void *', 'size_t']),
      madvise: this.#libc.func('madvise', 'int', ['void *', 'size_t', 'int']),
    };
    const { mmap, munmap, madvise } = this.#mapping;
    const address: Pointer | null = mmap(null, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (!address || BigInt.asUintN(64, address) === MAP_FAILED)
      throw new Error(`the system has no room to map ${bytes} bytes of a file`);
    return {
      address,
      bytes,
      forget(offset, length) {
        const start = Math.ceil(offset / PAGE_BYTES) * PAGE_BYTES;
        const end = Math.floor((offset + length) / PAGE_BYTES) * PAGE_BYTES;
        if (end > start) madvise(address + BigInt(start), end - start, MADV_DONTNEED);
      },
      unmap: () => void munmap(address, bytes),
    };
  }

  #mapping: Record<'mmap' | 'munmap' | 'madvise', ReturnType<LibraryHandle['func']>> | undefined;

  /** A context for `tensors` tensors without memory of their own, and for `graphBytes` bytes of graphs. */
  context(tensors: number, graphBytes = 0): Pointer {
    const bytes = (tensors + 1) * this.functions.ggml_tensor_overhead() + graphBytes;
    const context = this.functions.ggml_init({ mem_size: bytes, mem_buffer: null, no_alloc: true });
    if (!context) throw new Error('ggml has no memory for a context');
    return context;
  }

  /** The address of an array's memory, which stays where it is while the array is referenced. */
  addressOf(array: Uint8Array): Pointer {
    return this.#koffi.address(array);
  }

  /** Computes a graph on another thread; the calling thread stays free. */
  compute(backend: Pointer, graph: Pointer): Promise<void> {
    return new Promise((resolve, reject) => {
      this.functions.ggml_backend_graph_compute.async(backend, graph, (error: unknown, status: number) => {
        if (error) reject(error);
        else if (status === CONSTANTS.GGML_STATUS_SUCCESS) resolve();
        else reject(new Error(`ggml ended a step with the status ${status}`));
      });
    });
  }

  /** Sets a whole tensor from memory that stays as it is meanwhile, on another thread; the calling thread stays free. */
  copyTo(tensor: Pointer, source: Pointer, bytes: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.functions.ggml_backend_tensor_set.async(tensor, source, 0, bytes, (error: unknown) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  /**
   * Lets a C function that ignores its arguments take ggml's log: a function in JavaScript cannot, because ggml logs on other threads too. (`abs`
   * reads one integer register and returns.)
   */
  #silence(): void {
    this.functions.ggml_log_set(this.#koffi.address(this.#libc.symbol('abs')), null);
  }
}

let opened: Promise<Ggml> | undefined;

function bind(koffi: typeof import('koffi'), directory: string): Functions {
  koffi.struct('ggml_init_params', { mem_size: 'size_t', mem_buffer: 'void *', no_alloc: 'bool' });
  const bound: Record<string, unknown> = {};
  for (const [name, file] of Object.entries(libraryFiles(directory))) {
    const library: LibraryHandle = koffi.load(file);
    for (const [symbol, [result, ...parameters]] of Object.entries(SIGNATURES[name as keyof typeof SIGNATURES]))
      bound[symbol] = library.func(symbol, result, parameters);
  }
  return bound as unknown as Functions;
}

/** The names of the libraries' files may have a version, such as `libggml.v0.5.0.so`. */
function libraryFiles(directory: string): Record<keyof typeof SIGNATURES, string> {
  const files = readdirSync(directory);
  const find = (pattern: RegExp): string => {
    const file = files.find((each) => pattern.test(each));
    if (file === undefined) throw notUsable(`${directory} lacks a library of ggml`);
    return join(directory, file);
  };
  return {
    base: find(/^libggml-base(\.v[\d.]+)?\.(so|dylib)$/),
    main: find(/^libggml(\.v[\d.]+)?\.(so|dylib)$/),
  };
}

function notUsable(what: string, cause?: unknown): ModelError {
  return new ModelError('unsupported-model', `backend = "ggml": ${what}`, {
    hint: `install the optional dependencies: npm install koffi@3.3.4 @node-llama-cpp/${CPU_PACKAGES[`${process.platform} ${process.arch}`] ?? 'PLATFORM'}@${PINNED.packages}; or use backend = "onnx"`,
    cause,
  });
}
