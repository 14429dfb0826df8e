import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { fileFault, MAX_FILE_BYTES, MAX_FILES, MAX_FILES_BYTES } from '#scheduler/invocations/file-rules.ts';
import type { StoredFile } from '#scheduler/invocations/files.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { FileExchangeFile, FileExchangeFileInfo } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { OwnFiles } from './own.ts';

/** Bytes of files that an inferlet may have on their way out at once. */
const MAX_SENDING_BYTES = 2 * MAX_FILE_BYTES;
/** Calls of `receive-file` that may wait at once. */
const MAX_RECEIVING = 64;
/** Bytes of files that came in and that the inferlet has not read yet; one more file may come on top. */
const MAX_UNREAD_BYTES = 2 * MAX_FILE_BYTES;

const NO_FILES = handlerError('unsupported', 'this host exchanges no files');
const NO_MORE = handlerError('closed', 'the file is not there, and the client has closed the session');

/** One inferlet's transfers: bounded in bytes on their way, whether the inferlet reads what it asked for or not. */
export class FileTransfers {
  readonly #inferlet: Inferlet;
  #sendingBytes = 0;
  #receiving = 0;
  #unreadBytes = 0;
  /** One content after the other is fetched, so that the bound on what is unread holds. */
  #fetching: Promise<unknown> = Promise.resolve();

  constructor(inferlet: Inferlet) {
    this.#inferlet = inferlet;
  }

  send(name: string, mediaType: string, content: Uint8Array): Promise<Outcome<undefined>> {
    const fault = fileFault(name, mediaType, content.length);
    if (fault !== null) {
      const tag = content.length > MAX_FILE_BYTES ? 'limit-exceeded' : 'invalid-argument';
      return refused(handlerError(tag, fault));
    }
    if (this.#sendingBytes + content.length > MAX_SENDING_BYTES) {
      const text = `${this.#sendingBytes} bytes of files are on their way; await them and send again`;
      return refused(handlerError('limit-exceeded', text));
    }
    // The list is a view of the guest's memory, which goes on changing.
    const bytes = content.slice();
    this.#sendingBytes += bytes.length;
    const sent = this.#with((files) => this.#put(files, name, mediaType, bytes)).finally(() => {
      this.#sendingBytes -= bytes.length;
    });
    return this.#wait(sent);
  }

  receive(name: string): Promise<Outcome<FileExchangeFile>> {
    const fault = fileFault(name, 'text/plain', 0);
    if (fault !== null) return refused(handlerError('invalid-argument', fault));
    if (this.#receiving >= MAX_RECEIVING) {
      const text = `${MAX_RECEIVING} files are waited for already; await some of them first`;
      return refused(handlerError('limit-exceeded', text));
    }
    this.#receiving++;
    const received = this.#with(async (files) => {
      if (!(await files.appears(name, this.#inferlet.stopping))) return err(NO_MORE);
      return this.#fetch(files, name);
    }).finally(() => {
      this.#receiving--;
    });
    return this.#wait(received);
  }

  list(): Promise<Outcome<readonly FileExchangeFileInfo[]>> {
    return this.#wait(
      this.#with(async (files) => ok((await files.list()).map((file) => ({ ...file, size: BigInt(file.size) })))),
    );
  }

  async #put(files: OwnFiles, name: string, mediaType: string, bytes: Uint8Array): Promise<Outcome<undefined>> {
    switch (await files.put(name, mediaType, bytes)) {
      case 'ok':
        this.#inferlet.session.tellFile({ name, mediaType, bytes: bytes.length });
        return ok(undefined);
      case 'too-many':
        return err(handlerError('limit-exceeded', `an invocation has at most ${MAX_FILES} files`));
      case 'too-large':
        return err(handlerError('limit-exceeded', `the files of an invocation have at most ${MAX_FILES_BYTES} bytes`));
      case 'ended':
      case 'unknown':
        return err(handlerError('closed', 'the invocation has ended'));
    }
  }

  #fetch(files: OwnFiles, name: string): Promise<Outcome<FileExchangeFile>> {
    const fetched = this.#fetching.then(async (): Promise<Outcome<FileExchangeFile>> => {
      if (this.#unreadBytes > MAX_UNREAD_BYTES) {
        const text = `${this.#unreadBytes} bytes of files came in and were not read; read them first`;
        return err(handlerError('limit-exceeded', text));
      }
      const file = await files.get(name);
      return file ? ok(this.#unread(file)) : err(NO_MORE);
    });
    this.#fetching = fetched.catch(() => undefined);
    return fetched;
  }

  /** The file, whose content counts as unread until it is handed to the guest. */
  #unread({ mediaType, content }: StoredFile): FileExchangeFile {
    let unread: number = content.length;
    this.#unreadBytes += unread;
    const read = () => {
      this.#unreadBytes -= unread;
      unread = 0;
      return content;
    };
    return {
      mediaType,
      get content() {
        return read();
      },
    };
  }

  #wait<T>(work: Promise<Outcome<T>>): Promise<Outcome<T>> {
    const { hooks, interruptions } = this.#inferlet;
    return hooks.waits.during(interruptions.until(work));
  }

  async #with<T>(work: (files: OwnFiles) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const { own } = this.#inferlet;
    if (!own) return err(NO_FILES);
    try {
      return await work(own.files);
    } catch (error) {
      const { code, message } = StoreError.from(error);
      return err(handlerError(code === 'store-unavailable' ? 'unavailable' : 'internal', message));
    }
  }
}

function refused<T>(error: HandlerError): Promise<Outcome<T>> {
  return Promise.resolve(err(error));
}

/** `wit/file-exchange.wit`. */
export const fileExchange = {
  'send-file': ({ transfers }: Inferlet, name: string, mediaType: string, content: Uint8Array) =>
    transfers.send(name, mediaType, content),
  'receive-file': ({ transfers }: Inferlet, name: string) => transfers.receive(name),
  'list-files': ({ transfers }: Inferlet) => transfers.list(),
};
