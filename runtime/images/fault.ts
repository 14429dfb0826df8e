/** A fault of an image. The message says what is wrong and what to do; it becomes the text of an `invalid-argument`. */
export class ImageFault extends Error {
  override readonly name = 'ImageFault';
}
