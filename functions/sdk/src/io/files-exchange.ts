import type { FileInfo as WireFileInfo } from 'pie:inferlet/file-exchange@0.1.0';
import { type Message, toBytes, toText } from '../bytes.ts';
import { fileExchange, settle } from '../raw.ts';

/** A file of this invocation: its name, media type and size in bytes. */
export type ExchangedFile = WireFileInfo;

/** A file with its content. */
export interface ReceivedFile {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
  /** The content as UTF-8. */
  readonly text: string;
}

/**
 * Makes a file available to the client of this invocation, and notifies the client by a message. Limits: 16 MiB per file; 64 MiB and 256
 * files per invocation; names of 1 to 128 letters, digits, `.`, `_`, `-`. A file of the same name is replaced.
 * @param options.mediaType `text/plain` for text and `application/octet-stream` for bytes by default
 */
export function sendFile(name: string, content: Message, options: { readonly mediaType?: string } = {}): Promise<void> {
  const plain = typeof content === 'string' ? 'text/plain; charset=utf-8' : 'application/octet-stream';
  return settle(fileExchange.sendFile(name, options.mediaType ?? plain, toBytes(content)));
}

/** Waits for a file from the client or from this inferlet itself. Throws `closed` when the client has closed the session. */
export async function receiveFile(name: string): Promise<ReceivedFile> {
  const { mediaType, content } = await settle(fileExchange.receiveFile(name));
  return {
    name,
    mediaType,
    content,
    get text() {
      return toText(content);
    },
  };
}

/** The files available now, by name. */
export const listFiles = (): Promise<ExchangedFile[]> => settle(fileExchange.listFiles());
