import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import { embedKey, InstantCall, type ModelContext } from './call.ts';
import type { HostQueue } from './space.ts';

/** `read-embed` of `wit/output-text.wit`: a token's embedding, a state, or a part of an image. */
export class ReadEmbedCall extends InstantCall {
  readonly #embed: number;
  readonly #model: ModelContext;

  constructor(queue: HostQueue, id: number, embed: number, model: ModelContext) {
    super('instant', queue, id);
    this.#embed = embed;
    this.#model = model;
  }

  override execute(): undefined | Promise<void> {
    const embed = this.hostQueue.space.embeds.get(this.#embed);
    if (embed.kind !== 'token') {
      this.reply('read-embed', embed.values);
      return;
    }
    const { embeddings } = this.#model;
    if (!embeddings)
      throw fault('unsupported', 'this host cannot look up the embedding of a token; read a state instead');
    const { token } = embed;
    const reading = embeddings.prefetch([token]);
    if (reading) return reading.then(() => this.reply('read-embed', embeddings.row(token)));
    this.reply('read-embed', embeddings.row(token));
  }

  override visitKeys(visit: KeyVisitor): void {
    visit(embedKey(this.#embed), 'read');
  }

  protected override poison(): void {}
}
