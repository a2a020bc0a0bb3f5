# Randomised kernel CCA in R, the yardstick of benchmarks/kernel.py.
#
# The algorithm of Lopez-Paz et al. (2014), written for this comparison with R's own functions:
# features of both views, their covariances, a ridge, Cholesky factors, a singular value
# decomposition, as published; the kernels of Nystroem's method come from kernlab.
#
#   Rscript reference_rcca.R X.bin Y.bin ROWS COLUMNS METHOD RANK GAMMA_X GAMMA_Y REPEATS
#
# The files hold float64 columns one after the other. Prints the seconds of every repeat and the
# sum of the 50 leading training correlations.

suppressMessages(library(kernlab))

arguments <- commandArgs(trailingOnly = TRUE)
rows <- as.integer(arguments[3])
columns <- as.integer(arguments[4])
method <- arguments[5]
rank <- as.integer(arguments[6])
gammas <- as.numeric(arguments[7:8])
repeats <- as.integer(arguments[9])
components <- 50
ridge <- 1e-10

read_view <- function(path) {
  matrix(readBin(path, "double", rows * columns), rows, columns)
}

features <- function(view, gamma) {
  if (method == "fourier") {
    weights <- matrix(rnorm(ncol(view) * rank, sd = sqrt(2 * gamma)), ncol(view))
    phases <- runif(rank, 0, 2 * pi)
    return(cos(sweep(view %*% weights, 2, phases, "+")))
  }
  landmarks <- view[sample(nrow(view), rank), ]
  as.matrix(kernelMatrix(rbfdot(sigma = gamma), view, landmarks))
}

ridge_cca <- function(F, G) {
  U <- chol(var(F) + diag(ridge, rank))
  V <- chol(var(G) + diag(ridge, rank))
  U_inverse <- solve(U)
  V_inverse <- solve(V)
  whitened <- t(U_inverse) %*% cov(F, G) %*% V_inverse
  pairs <- svd(whitened, nu = components, nv = components)
  list(correlations = pairs$d[1:components],
       A = U_inverse %*% pairs$u, B = V_inverse %*% pairs$v)
}

views <- list(read_view(arguments[1]), read_view(arguments[2]))
set.seed(0)
for (repetition in seq_len(repeats)) {
  seconds <- system.time({
    fitted <- ridge_cca(features(views[[1]], gammas[1]), features(views[[2]], gammas[2]))
  })[["elapsed"]]
  cat(seconds, sum(fitted$correlations), "\n")
}
