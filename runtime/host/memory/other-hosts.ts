import type { DeviceClient, DeviceUsage, GpuHostConnection, InferletOptions } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';

/** An inferlet's queue of calls on one GPU host. */
export interface Side {
  readonly device: DeviceClient;
  readonly queue: number;
}

/** An inferlet's queue on a GPU host that it does not run on. */
export interface OtherSide extends Side {
  readonly connection: GpuHostConnection;
}

/** Usage without encoded tokens: an inferlet calls encoders only on its own hosts. */
type Usage = Omit<DeviceUsage, 'encodedTokens'>;

interface OpenHost {
  readonly device: DeviceClient;
  /** Queues by model. */
  readonly queues: Map<string, number>;
}

/** One inferlet's queues on GPU hosts that it does not run on, for names that those hosts own. The loss of a host costs only the locks there. */
export class OtherHosts {
  readonly #options: () => InferletOptions;
  readonly #open = new Map<GpuHostConnection, OpenHost>();
  /** Replaced devices whose hosts have not reported their last usage yet. */
  readonly #ending = new Set<DeviceClient>();
  /** Usage of devices that have ended. */
  #past: Usage = { gpuUs: 0, pageMs: 0 };
  #isClosed = false;

  constructor(options: () => InferletOptions) {
    this.#options = options;
  }

  /** Usage by the last reports of all hosts. */
  get usage(): Usage {
    let { gpuUs, pageMs } = this.#past;
    for (const { usage } of [...[...this.#open.values()].map(({ device }) => device), ...this.#ending]) {
      gpuUs += usage.gpuUs;
      pageMs += usage.pageMs;
    }
    return { gpuUs, pageMs };
  }

  /** The inferlet's queue for a model on a host. Opens the host at first use, and again after its loss. */
  at(connection: GpuHostConnection, model: string): OtherSide {
    const known = this.#open.get(connection);
    const open = known && known.device.lost === undefined ? known : this.#reopen(connection);
    const queue = open.queues.get(model) ?? open.device.createQueue(model);
    open.queues.set(model, queue);
    return { device: open.device, queue, connection };
  }

  /** Ends what is open at a host: its pending calls, its locks, and pages on their way. */
  drop(connection: GpuHostConnection): void {
    const known = this.#open.get(connection);
    if (!known) return;
    this.#open.delete(connection);
    void this.#end(known.device);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const devices = [...[...this.#open.values()].map(({ device }) => device), ...this.#ending];
    await Promise.all(devices.map((device) => device.close()));
  }

  /** Closes the device at a host, and adds the usage that the host then reports to the past usage. */
  async #end(device: DeviceClient): Promise<void> {
    this.#ending.add(device);
    await device.close();
    this.#ending.delete(device);
    const { gpuUs, pageMs } = device.usage;
    this.#past = { gpuUs: this.#past.gpuUs + gpuUs, pageMs: this.#past.pageMs + pageMs };
  }

  #reopen(connection: GpuHostConnection): OpenHost {
    this.drop(connection);
    const open: OpenHost = { device: connection.openInferlet(this.#options()), queues: new Map() };
    this.#open.set(connection, open);
    if (this.#isClosed) void open.device.close();
    return open;
  }
}

/** Longest wait for one answer of a GPU host. */
const ANSWER_MS = 30_000;
/** Longest transfer. It occupies a turn for which other transfers wait. */
const TRANSFER_MS = 120_000;

/** The error for an answer that did not come in time. */
export const LATE = handlerError(
  'unavailable',
  `the other GPU host did not answer within ${ANSWER_MS / 1000} s; try again`,
);
const SLOW = handlerError(
  'unavailable',
  `the transfer from another GPU host took more than ${TRANSFER_MS / 1000} s; try again`,
);
const NO_PIECE = handlerError('internal', 'the GPU host sent fewer bytes than it announced');

/** The answer of a GPU host, or an error when it takes too long. */
export async function answerInTime<T>(pending: Promise<Outcome<T>>): Promise<Outcome<T>> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<Outcome<T>>((resolve) => {
    timer = setTimeout(() => resolve(err(LATE)), ANSWER_MS);
  });
  try {
    return await Promise.race([pending, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Carries the content of pages to another GPU host, which keeps a copy. Reads one piece while it writes the one before. A transfer that fails
 * leaves nothing at either host.
 *
 * @param version text that names the copy at the other host
 * @param stopReason returns an error once the transfer must stop; called before each piece
 */
export async function carry(
  from: Side,
  pages: Uint32Array,
  to: Side,
  version: string,
  stopReason: () => HandlerError | null,
): Promise<Outcome<undefined>> {
  const begun = await answerInTime(from.device.ask(from.queue, { op: 'send-begin', pages }));
  if (begun.tag === 'err') return begun;
  const { sending, bytes, pages: count, fingerprint, pageSize, pageBytes } = begun.val;
  let isSent = false;
  let copy: number | undefined;
  try {
    const beginCall = { op: 'copy-begin', version, pages: count, fingerprint, pageSize, pageBytes } as const;
    const begunCopy = await answerInTime(to.device.ask(to.queue, beginCall));
    if (begunCopy.tag === 'err') return begunCopy;
    copy = begunCopy.val;
    const failure = await movePieces({ next: nextFrom(from, sending), take: takeAt(to, copy), bytes }, stopReason);
    if (failure) return err(failure);
    isSent = true;
    const checksum = await answerInTime(from.device.ask(from.queue, { op: 'send-end', sending }));
    if (checksum.tag === 'err') return checksum;
    const keptCopy = await answerInTime(to.device.ask(to.queue, { op: 'copy-end', copy, checksum: checksum.val }));
    if (keptCopy.tag === 'ok') copy = undefined;
    return keptCopy;
  } finally {
    // Ends the sending after a failure. Its checksum is not needed.
    if (!isSent) void from.device.ask(from.queue, { op: 'send-end', sending });
    if (copy !== undefined) to.device.send(to.queue, { op: 'copy-drop', copy });
  }
}

/** The two ends of a transfer, and the bytes that go from one to the other. */
export interface Pieces {
  readonly next: () => Promise<Outcome<Uint8Array>>;
  readonly take: (piece: Uint8Array) => Promise<Outcome<undefined>>;
  readonly bytes: number;
}

/** Moves all pieces, and reads one piece while the one before is written. @returns the error that ended the transfer early, or null */
export async function movePieces(
  { next, take, bytes }: Pieces,
  stopReason: () => HandlerError | null,
): Promise<HandlerError | null> {
  const endsMs = performance.now() + TRANSFER_MS;
  let writing: Promise<Outcome<undefined>> | undefined;
  for (let remainingBytes = bytes; remainingBytes > 0; ) {
    const stopError = stopReason() ?? (performance.now() > endsMs ? SLOW : null);
    if (stopError) return stopError;
    const piece = await next();
    const earlierWrite = writing && (await writing);
    if (earlierWrite?.tag === 'err') return earlierWrite.val;
    if (piece.tag === 'err') return piece.val;
    if (piece.val.length === 0 || piece.val.length > remainingBytes) return NO_PIECE;
    writing = take(piece.val);
    remainingBytes -= piece.val.length;
  }
  const lastWrite = writing && (await writing);
  return lastWrite?.tag === 'err' ? lastWrite.val : null;
}

/** Asks for the next piece of a sending. */
export const nextFrom =
  ({ device, queue }: Side, sending: number) =>
  (): Promise<Outcome<Uint8Array>> =>
    answerInTime(device.ask(queue, { op: 'send-piece', sending }));

/** Adds a piece to a copy. */
export const takeAt =
  ({ device, queue }: Side, copy: number) =>
  (bytes: Uint8Array): Promise<Outcome<undefined>> =>
    answerInTime(device.ask(queue, { op: 'copy-piece', copy, bytes }));
