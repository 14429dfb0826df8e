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

/**
 * Packages with the libraries for this machine, the preferred one first, by `process.platform` and `process.arch`. Each holds everything for the CPU;
 * the first one of `linux x64` also computes on GPUs through Vulkan, where the machine has `libvulkan.so.1` and a driver. A process loads one package.
 */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  'linux x64': ['linux-x64-vulkan', 'linux-x64'],
  'linux arm64': ['linux-arm64'],
};

type Functions = { readonly [name in keyof GgmlFunctions]: KoffiFunc<GgmlFunctions[name]> };

/** A computing device that ggml found. */
export interface GgmlDevice {
  readonly handle: Pointer;
  readonly name: string;
  readonly description: string;
  readonly isCpu: boolean;
  readonly isGpu: boolean;
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

/** Kinds of devices to compute on: the CPU, a GPU, or a GPU where there is one and else the CPU. */
export type DeviceKind = 'cpu' | 'gpu' | 'auto';

/** ggml's functions, bound to the libraries of the pinned packages. A process loads them once. */
export class Ggml {
  readonly functions: Functions;
  readonly devices: readonly GgmlDevice[];
  readonly #koffi: typeof import('koffi');
  #threadsType: ReturnType<typeof import('koffi').proto> | undefined;
  readonly #libc: LibraryHandle;

  private constructor(koffi: typeof import('koffi'), directory: string, libraries: Libraries) {
    this.#koffi = koffi;
    this.#libc = koffi.load(process.platform === 'darwin' ? '/usr/lib/libSystem.B.dylib' : 'libc.so.6');
    this.functions = bind(koffi, libraries);
    const { functions } = this;
    const [version, commit] = [functions.ggml_version(), functions.ggml_commit()];
    if (version !== PINNED.version || commit !== PINNED.commit)
      throw notUsable(`${directory} holds ggml ${version} (${commit}), not ${PINNED.version} (${PINNED.commit})`);
    this.#silence();
    // A library whose own dependencies are missing, such as Vulkan's loader, is left out in silence.
    functions.ggml_backend_load_all_from_path(directory);
    const { GGML_BACKEND_DEVICE_TYPE_CPU, GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU } = CONSTANTS;
    const found = Array.from({ length: functions.ggml_backend_dev_count() }, (_, i) => {
      const handle = functions.ggml_backend_dev_get(i);
      const type = functions.ggml_backend_dev_type(handle);
      return {
        handle,
        name: functions.ggml_backend_dev_name(handle),
        description: functions.ggml_backend_dev_description(handle),
        isCpu: type === GGML_BACKEND_DEVICE_TYPE_CPU,
        isGpu: type === GGML_BACKEND_DEVICE_TYPE_GPU || type === GGML_BACKEND_DEVICE_TYPE_IGPU,
        isIntegrated: type === GGML_BACKEND_DEVICE_TYPE_IGPU,
      };
    });
    this.devices = found.toSorted((a, b) => Number(a.isIntegrated) - Number(b.isIntegrated));
  }

  /** @throws ModelError `unsupported-model` when the packages are not installed, or hold another build */
  static async open(): Promise<Ggml> {
    opened ??= Ggml.#open();
    return opened;
  }

  static async #open(): Promise<Ggml> {
    const system = `${process.platform} ${process.arch}`;
    const packages = PACKAGES[system];
    if (packages === undefined) throw notUsable(`there is no package with libraries for ${system}`);
    try {
      const koffi = await import('koffi');
      let cause: unknown;
      for (const name of packages) {
        try {
          // The package exports a file in its folder `dist`; the libraries are beside that folder.
          const exported = fileURLToPath(import.meta.resolve(`@node-llama-cpp/${name}`));
          const directory = join(exported, '..', '..', 'bins', name);
          return new Ggml(koffi, directory, loadLibraries(koffi, directory));
        } catch (error) {
          if (error instanceof ModelError) throw error;
          cause ??= error;
        }
      }
      throw cause;
    } catch (error) {
      if (error instanceof ModelError) throw error;
      const names = packages.map((name) => `"@node-llama-cpp/${name}"`).join(' or ');
      throw notUsable(`the packages "koffi" and ${names} cannot be loaded: ${(error as Error).message}`, error);
    }
  }

  /**
   * The device of a kind: the first GPU with memory of its own goes before those that share the CPU's.
   * @throws ModelError when there is none
   */
  device(kind: DeviceKind): GgmlDevice {
    const cpu = this.devices.find(({ isCpu }) => isCpu);
    const gpu = this.devices.find(({ isGpu }) => isGpu);
    const device = kind === 'cpu' ? cpu : kind === 'gpu' ? gpu : (gpu ?? cpu);
    if (device !== undefined) return device;
    if (kind !== 'gpu') throw notUsable('no library of the package runs on this CPU');
    throw new ModelError('unsupported-model', 'ggml found no GPU', {
      hint: `install the GPU's Vulkan driver, Vulkan's loader (libvulkan.so.1) and the optional dependency @node-llama-cpp/linux-x64-vulkan@${PINNED.packages}; or compute on the CPU`,
    });
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

  /** What computes graphs on a device. @throws ModelError */
  engine(device: GgmlDevice): Pointer {
    const engine = this.functions.ggml_backend_dev_init(device.handle, null);
    if (!engine) throw notUsable(`${device.description} cannot be initialised`);
    return engine;
  }

  /** Free and total bytes of a device's memory. Where the driver does not count what is in use, all of it is free. */
  memory(device: GgmlDevice): { readonly freeBytes: number; readonly totalBytes: number } {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    this.functions.ggml_backend_dev_memory(device.handle, free, total);
    return { freeBytes: Number(free[0]), totalBytes: Number(total[0]) };
  }

  /** True when the device computes the node `tensor` of a graph, whose inputs' types and sizes matter too. */
  supports(device: GgmlDevice, tensor: Pointer): boolean {
    return device.isCpu || this.functions.ggml_backend_dev_supports_op(device.handle, tensor);
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

type Libraries = Readonly<Record<keyof typeof SIGNATURES, LibraryHandle>>;

/** @throws Error when a file is missing or the first library cannot be loaded, so that another package may be; else ModelError */
function loadLibraries(koffi: typeof import('koffi'), directory: string): Libraries {
  const files = readdirSync(directory);
  const find = (pattern: RegExp): string => {
    const file = files.find((each) => pattern.test(each));
    if (file === undefined) throw new Error(`${directory} lacks a library of ggml`);
    return join(directory, file);
  };
  // The names may have a variant and a version, such as `libggml.vulkan.v0.5.0.so`.
  const base = find(/^libggml-base(\.v[\d.]+)?\.(so|dylib)$/);
  const main = find(/^libggml(\.[a-z]+)?(\.v[\d.]+)?\.(so|dylib)$/);
  const loadedBase = koffi.load(base);
  try {
    return { base: loadedBase, main: koffi.load(main) };
  } catch (error) {
    throw notUsable(`${main} cannot be loaded: ${(error as Error).message}`, error);
  }
}

function bind(koffi: typeof import('koffi'), libraries: Libraries): Functions {
  koffi.struct('ggml_init_params', { mem_size: 'size_t', mem_buffer: 'void *', no_alloc: 'bool' });
  const bound: Record<string, unknown> = {};
  for (const [name, signatures] of Object.entries(SIGNATURES)) {
    const library = libraries[name as keyof Libraries];
    for (const [symbol, [result, ...parameters]] of Object.entries(signatures))
      bound[symbol] = library.func(symbol, result, parameters);
  }
  return bound as unknown as Functions;
}

/** The error for a part of a model that does not fit a device's memory, with its bytes if they are known. */
export function tooLittleMemory(ggml: Ggml, device: GgmlDevice, what: string, bytes?: number): ModelError {
  const mib = (count: number) => `${Math.ceil(count / 2 ** 20)} MiB`;
  const { freeBytes, totalBytes } = ggml.memory(device);
  const needed = bytes === undefined ? '' : ` (${mib(bytes)})`;
  return new ModelError(
    'unsupported-model',
    `backend = "ggml": ${what}${needed} do not fit the memory of ${device.description}: ${mib(freeBytes)} of ${mib(totalBytes)} are free`,
    { hint: 'take fewer pages, fewer bits or a smaller model, or compute on the CPU' },
  );
}

function notUsable(what: string, cause?: unknown): ModelError {
  return new ModelError('unsupported-model', `backend = "ggml": ${what}`, {
    hint: `install the optional dependencies: npm install koffi@3.3.4 @node-llama-cpp/${PACKAGES[`${process.platform} ${process.arch}`]?.at(-1) ?? 'PLATFORM'}@${PINNED.packages}; or use backend = "onnx"`,
    cause,
  });
}
