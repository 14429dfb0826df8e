import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import { towerRows, type VisionConfig } from '../../models/vision/config.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { Operation } from '../../protocol/operations.ts';
import { embedKey, HostCall, type HostQueue, type ModelContext, type OpenImage, type WaitEnds } from './call.ts';

/**
 * `embed-image` of `wit/input-image.wit`: an image through the vision tower. The call takes its place in its queue before its pixels
 * arrive, while the runtime decodes them. It then goes with other images in a step of their own.
 */
export class EmbedImageCall extends HostCall implements OpenImage {
  readonly #operation: Operation<'embed-image'>;
  readonly #vision: VisionConfig | undefined;
  /** Called when the pixels have arrived, or the runtime has refused the image. */
  readonly #engine: WaitEnds;
  #pixels: Uint8Array | undefined;
  #refusal: HandlerError | undefined;

  constructor(
    queue: HostQueue,
    id: number,
    operation: Operation<'embed-image'>,
    { backend }: ModelContext,
    engine: WaitEnds,
  ) {
    super('encode', queue, id);
    this.#operation = operation;
    this.#vision = backend.images?.config;
    this.#engine = engine;
    queue.space.images.set(id, this);
    queue.space.waitingCallCount++;
  }

  /** Cost of the call in a step: rows of the tower. */
  override get tokens(): number {
    return this.#vision ? towerRows(this.#vision) : 1;
  }

  override acquire(): boolean {
    return this.#pixels !== undefined || this.#refusal !== undefined;
  }

  pixels(pixels: Uint8Array): void {
    if (this.acquire()) return;
    this.#pixels = pixels;
    this.#engine.imageArrived(this, pixels.length);
  }

  refuse(why: HandlerError): void {
    if (this.acquire()) return;
    this.#refusal = why;
    this.#engine.imageArrived(this, 0);
  }

  /** The image for the device. @throws CallFault when the call is invalid */
  prepare(): Uint8Array {
    this.hostQueue.checkGoesOn();
    if (this.#refusal) throw fault(this.#refusal.tag, this.#refusal.val);
    if (!this.#vision) throw fault('unsupported', 'this model takes no images; ask runtime.model-traits');
    const { positions, embeds } = this.#operation;
    const { embeds: count, embedSize, imageSize } = this.#vision;
    if (positions.length !== count || embeds.length !== count) {
      throw fault(
        'invalid-argument',
        `${positions.length} positions and ${embeds.length} embeds for an image of ${count} embeds; ask image-embeds`,
      );
    }
    const pixels = this.#pixels ?? NO_PIXELS;
    const bytes = BYTES_PER_PIXEL * imageSize * imageSize;
    if (pixels.length !== bytes)
      throw fault('invalid-argument', `${pixels.length} bytes of pixels; ${bytes} are expected`);
    const { embeds: spaceEmbeds } = this.hostQueue.space;
    spaceEmbeds.checkHeld(embeds);
    spaceEmbeds.checkStateRoom(count * embedSize * Float32Array.BYTES_PER_ELEMENT);
    return pixels;
  }

  /** Stores what the device made of the image. */
  accept(values: Float32Array): void {
    const { positions, embeds } = this.#operation;
    const size = values.length / embeds.length;
    const { embeds: spaceEmbeds } = this.hostQueue.space;
    // Other images of the same step may have taken the room.
    spaceEmbeds.checkStateRoom(values.byteLength);
    for (let i = 0; i < embeds.length; i++) {
      // Copy each slice, so that one kept embed does not keep the whole array alive.
      spaceEmbeds.setImage(embeds[i] as number, values.slice(i * size, (i + 1) * size), positions[i] as number);
    }
    this.replyDone('embed-image');
  }

  override visitKeys(visit: KeyVisitor): void {
    for (const embed of this.#operation.embeds) visit(embedKey(embed), 'write');
  }

  protected override poison(cause: HandlerError): void {
    const { embeds } = this.hostQueue.space;
    embeds.fail(this.#operation.embeds, cause, this.hostQueue);
  }
}

/** Red, green and blue. */
const BYTES_PER_PIXEL = 3;

const NO_PIXELS = new Uint8Array(0);
