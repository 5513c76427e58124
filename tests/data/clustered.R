# R's figures of the models of tests/test_clustered.py:
#   Rscript tests/data/clustered.R > tests/data/clustered.json
# The square root in CR2 may be taken in several ways. For a glm, clubSandwich takes that of rows in
# the units of the working response; "whitened" is clubSandwich on the same rows times the roots of
# their weights, where the model is an ordinary regression. Both have the right mean if the model
# holds, and they are the same for lm without weights.
library(clubSandwich)
library(jsonlite)
files <- sort(Sys.glob("examples/randhie/*.csv"))
rows <- do.call(rbind, lapply(seq_along(files), function(j) cbind(read.csv(files[j]), site = j)))
rows <- rows[rows$year == 1, ]
rows <- rows[seq(1, nrow(rows), 8), ]
rows$visited <- as.numeric(rows$mdvis > 0)

rows$place <- factor(rows$site)
cars <- read.csv("tests/data/mtcars.csv")
cars$site <- cars$cyl
grouped <- aggregate(cbind(visited, trials = 1) ~ site + health + female, rows, sum)
grouped$failures <- grouped$trials - grouped$visited

control <- glm.control(epsilon = 1e-15, maxit = 100)
described <- function(m, cluster) {
  V <- vcovCR(m, cluster = cluster, type = "CR2")
  df <- coef_test(m, V, test = "Satterthwaite")
  terms <- sub("(Intercept)", "Intercept", names(coef(m)), fixed = TRUE)
  list(se = as.list(setNames(sqrt(diag(V)), terms)), df = as.list(setNames(df$df_Satt, terms)))
}
case <- function(m, cluster) {
  found <- described(m, cluster)
  w <- m$weights
  if (is.null(w)) return(c(found, list(whitened = found)))
  X <- sqrt(w) * model.matrix(m)
  colnames(X) <- names(coef(m))
  z <- sqrt(w) * drop(model.matrix(m) %*% coef(m)) + sqrt(w) * residuals(m, "working")
  plain <- lm(z ~ X - 1)
  names(plain$coefficients) <- names(coef(m))
  c(found, list(whitened = described(plain, cluster)))
}
cases <- list(
  "gaussian" = case(lm(mdvis ~ logc + physlm + female, rows), rows$site),
  "gaussian with site effects" = case(lm(mdvis ~ place + logc + physlm, rows), rows$site),
  "gaussian without intercept" = case(lm(mdvis ~ logc + physlm + health - 1, rows), rows$site),
  "small gaussian" = case(lm(mpg ~ wt + hp, cars), cars$site),
  "small gaussian, one slope" = case(lm(mpg ~ wt, cars), cars$site),
  "logistic" = case(glm(visited ~ logc + physlm + health, binomial(), rows, control = control), rows$site),
  "poisson" = case(glm(mdvis ~ logc + physlm + female, poisson(), rows, control = control), rows$site),
  "poisson with site effects" = case(glm(mdvis ~ place + logc + physlm, poisson(), rows, control = control), rows$site),
  "grouped" = case(glm(cbind(visited, failures) ~ female + health, binomial(), grouped, control = control), grouped$site)
)
cat(toJSON(cases, auto_unbox = TRUE, digits = NA, na = "null", pretty = TRUE), "\n")
