import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import {
  fileFault,
  MAX_FAMILY_FILES_BYTES,
  MAX_FILE_BYTES,
  MAX_FILES,
  MAX_FILES_BYTES,
  MAX_TENANT_FILES_BYTES,
} from '#scheduler/invocations/types.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import type { FileExchangeFile, FileExchangeFileInfo } from '#wit/generated/host.ts';
import { ask, askStore, type StoreCaller } from '../services/ask.ts';
import type { InvocationFiles, InvocationServices } from '../services/services.ts';
import { DroppableWait, Holdings, UnreadResult, type UnreadResults } from './holdings.ts';
import type { Session } from './session-state.ts';

/** Maximum calls of `receive-file` that may wait at once. */
const MAX_RECEIVING = 64;

const NO_FILES = handlerError('unsupported', 'this host exchanges no files');
/**
 * The answer of `receive-file` when the file cannot come any more. The answer is the same when the invocation has ended, when the file was
 * removed before it could be read, and when the guest has dropped the call (and so does not read the answer).
 */
const NO_MORE = handlerError('closed', 'the client has closed the session without sending this file');

/** The part of an inferlet that exchanges files. */
interface ExchangingInferlet extends StoreCaller {
  readonly unread: UnreadResults;
  readonly invocation: InvocationServices | null;
  readonly session: Session;
}

/** One inferlet's transfers. */
export class FileTransfers {
  readonly #inferlet: ExchangingInferlet;
  readonly #receiving = new Holdings(MAX_RECEIVING, 'waits for files');
  /** Tail of the chain of fetches: files are fetched one at a time, so that the bound on unread bytes holds. */
  #fetching: Promise<unknown> = Promise.resolve();

  constructor(inferlet: ExchangingInferlet) {
    this.#inferlet = inferlet;
  }

  send(name: string, mediaType: string, content: Uint8Array): Promise<Outcome<undefined>> {
    const fault = fileFault(name, mediaType, content.length);
    if (fault !== null) {
      const tag = content.length > MAX_FILE_BYTES ? 'limit-exceeded' : 'invalid-argument';
      return refuse(handlerError(tag, fault));
    }
    // Copy the content: it is a view of the guest's memory, which the guest may change.
    const stored = content.slice();
    return this.#askStore((files) => this.#put(files, name, mediaType, stored), content.length);
  }

  receive(name: string): Promise<Outcome<FileExchangeFile>> {
    // Only the name is checked: a call of `receive-file` has no media type and no size.
    const fault = fileFault(name, 'text/plain', 0);
    if (fault !== null) return refuse(handlerError('invalid-argument', fault));
    const { unread, outgoing, stopped, invocation } = this.#inferlet;
    const wait = new DroppableWait();
    // `ask` also refuses a stopped inferlet and a call without room. Check both before `#receiving.take`, because a call that `ask` refuses would
    // never give its wait back. `refusal(0)`: the call carries no bytes.
    const refused = invocation ? (stopped ?? outgoing.refusal(0) ?? this.#receiving.take(wait)) : NO_FILES;
    if (refused) return refuse(refused);
    const unreadResult = new UnreadResult(unread, () => wait.drop());
    const received = this.#ask(async (files): Promise<Outcome<FileExchangeFile>> => {
      try {
        if (await files.appears(name, wait.signal)) return await this.#fetch(files, name, unreadResult, wait.signal);
        return err(NO_MORE);
      } finally {
        this.#receiving.give(wait);
      }
    });
    return unreadResult.of(received);
  }

  list(): Promise<Outcome<readonly FileExchangeFileInfo[]>> {
    return this.#askStore(async (files) =>
      ok((await files.list()).map((file) => ({ ...file, size: BigInt(file.size) }))),
    );
  }

  /** Ends every wait. */
  stop(): void {
    this.#receiving.dropAll();
  }

  async #put(files: InvocationFiles, name: string, mediaType: string, bytes: Uint8Array): Promise<Outcome<undefined>> {
    const outcome = await files.put(name, mediaType, bytes).catch((error: unknown) => {
      if (error instanceof QuotaExceeded) return error;
      throw error;
    });
    if (outcome instanceof QuotaExceeded) return err(handlerError('limit-exceeded', outcome.message));
    switch (outcome) {
      case 'ok':
        this.#inferlet.session.tellFile({ name, mediaType, bytes: bytes.length });
        return ok(undefined);
      case 'too-many':
        return err(handlerError('limit-exceeded', `an invocation has at most ${MAX_FILES} files`));
      case 'too-large':
        return err(handlerError('limit-exceeded', `the files of an invocation have at most ${MAX_FILES_BYTES} bytes`));
      case 'family-full':
        return err(
          handlerError(
            'limit-exceeded',
            `the files of an invocation and all its children have at most ${MAX_FAMILY_FILES_BYTES} bytes together`,
          ),
        );
      case 'tenant-full':
        return err(
          handlerError(
            'limit-exceeded',
            `the stored files of this tenant have at most ${MAX_TENANT_FILES_BYTES} bytes; those of ended invocations are deleted after some time`,
          ),
        );
      case 'ended':
      case 'unknown':
        return err(handlerError('closed', 'the invocation has ended'));
    }
  }

  #fetch(
    files: InvocationFiles,
    name: string,
    unreadResult: UnreadResult,
    dropSignal: AbortSignal,
  ): Promise<Outcome<FileExchangeFile>> {
    const fetched = this.#fetching.then(async (): Promise<Outcome<FileExchangeFile>> => {
      // The size is not known yet: read a file only when there is room for at least one more byte.
      const full = this.#inferlet.unread.refusal(1);
      if (full) return err(full);
      const file = dropSignal.aborted ? null : await this.#read(files, name);
      if (!file) return err(NO_MORE);
      const { mediaType, content } = file;
      const noRoom = unreadResult.offer(content.length);
      return noRoom ? err(noRoom) : ok({ mediaType, content });
    });
    this.#fetching = fetched.catch(() => undefined);
    return fetched;
  }

  /** Reads a file once the tenant's queue has room for the largest possible file: the size is not known before the read. */
  #read(files: InvocationFiles, name: string): ReturnType<InvocationFiles['get']> {
    const { services, description } = this.#inferlet;
    return services.storeQueues.during(description.tenant, MAX_FILE_BYTES, () => files.get(name));
  }

  async #ask<T>(work: (files: InvocationFiles) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const { invocation } = this.#inferlet;
    return invocation ? ask(this.#inferlet, () => work(invocation.files)) : err(NO_FILES);
  }

  async #askStore<T>(work: (files: InvocationFiles) => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
    const { invocation } = this.#inferlet;
    return invocation ? askStore(this.#inferlet, () => work(invocation.files), bytes) : err(NO_FILES);
  }
}

function refuse<T>(error: HandlerError): Promise<Outcome<T>> {
  return Promise.resolve(err(error));
}

/** The part of an inferlet that the functions of the interface use. */
interface Exchanging {
  readonly transfers: FileTransfers;
}

/** Implements `wit/file-exchange.wit`. */
export const fileExchange = {
  'send-file': ({ transfers }: Exchanging, name: string, mediaType: string, content: Uint8Array) =>
    transfers.send(name, mediaType, content),
  'receive-file': ({ transfers }: Exchanging, name: string) => transfers.receive(name),
  'list-files': ({ transfers }: Exchanging) => transfers.list(),
};
