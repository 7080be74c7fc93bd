// In a query, Material reads `-` as "without" and `:` as "in this field": --preset would find nothing.
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  if (typeof message?.data === "string") message.data = message.data.replace(/[-:~^]+/g, " ");
  post.call(this, message, ...rest);
};
